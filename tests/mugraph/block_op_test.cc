// What operators of each kind have, and that reading another part ends the program.
#include "core/mugraph/block_op.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "tests/support/test.h"

using namespace quern;

namespace {

const BlockOp kLoad(BlockOp::Load{{3, {0, -1, -1, -1}, 1}});
const BlockOp kStore(BlockOp::Store{{4, {-1, 1, -1, -1}, -1}}, {0});
const BlockOp kSum(BlockOp::Compute{OpCode::reduce_sum}, {0});
const BlockOp kJoin(BlockOp::Accumulate{Combine::concat, 1}, {0});
const BlockOp kMax(BlockOp::Accumulate{Combine::max}, {0});
const BlockOp kCluster(BlockOp::ReduceCluster{Combine::sum}, {0});
const BlockOp kFactor{BlockOp::RescaleFactor()};

void each_kind_has_its_parts(void**) {
  assert_true(kLoad.kind() == BlockOp::Kind::load && kLoad.is_load() && kLoad.has_access());
  assert_int_equal(kLoad.tensor(), 3);
  assert_int_equal(kLoad.map()[0], 0);
  assert_int_equal(kLoad.loop_dim(), 1);
  assert_true(kStore.is_store() && kStore.has_access() && !kStore.is_load());
  assert_int_equal(kStore.tensor(), 4);
  assert_true(kSum.is_compute(OpCode::reduce_sum) && kSum.is_compute(OpKind::reduction));
  assert_false(kSum.is_compute(OpCode::constant) || kSum.has_access() || kSum.has_combine());
  assert_true(kJoin.is_accumulate(Combine::concat) && !kJoin.is_accumulate(Combine::max));
  assert_int_equal(kJoin.concat_dim(), 1);
  assert_true(kCluster.is_reduce_cluster() && kCluster.combine() == Combine::sum);
  assert_true(kCluster.has_combine() && !kCluster.is_accumulate(Combine::sum));
  assert_true(kFactor.is_rescale_factor() && !kFactor.has_combine() && kFactor.operands.empty());
  assert_true(BlockOp::constant(0.5).number() == 0.5 && BlockOp::constant(1).extents().empty());
}

void an_operator_becomes_another_one(void**) {
  BlockOp op = kLoad;
  op.name = "positions";
  op.become(BlockOp::Compute{.code = OpCode::iota, .tile = op.access()});
  assert_true(op.is_compute(OpCode::iota) && op.has_access() && op.access() == kLoad.access());
  assert_string_equal(op.name.c_str(), "positions");
  op.access().tensor = 7;
  op.compute().code = OpCode::cast;
  assert_true(op.tensor() == 7 && op.code() == OpCode::cast);
}

// What a process that does it writes, which must be aborted for it.
std::string last_words(const std::function<void()>& act) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const rlimit none{0, 0};  // no core file
    setrlimit(RLIMIT_CORE, &none);
    std::signal(SIGABRT, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    act();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char part[256];
  for (ssize_t size; (size = read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(size));
  close(ends[0]);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) fail_test("not aborted: " + text);
  return text;
}

void another_part_ends_the_program(void**) {
  struct Case {
    std::function<void()> act;
    const char* message;
  };
  BlockOp load = kLoad, sum = kSum, named = kMax;
  named.name = "m";
  const Case cases[] = {
      {[&] { (void)kLoad.code(); }, "load has no code"},
      {[&] { (void)kLoad.attrs(); }, "load has no code"},
      {[&] { (void)kLoad.number(); }, "load has no number"},
      {[&] { (void)kLoad.combine(); }, "load has no combine"},
      {[&] { (void)kStore.code(); }, "store has no code"},
      {[&] { (void)kSum.tensor(); }, "sum has no tensor"},
      {[&] { (void)kSum.map(); }, "sum has no tensor"},
      {[&] { (void)kSum.loop_dim(); }, "sum has no tensor"},
      {[&] { (void)kSum.number(); }, "sum has no number"},
      {[&] { (void)kSum.extents(); }, "sum has no extents"},
      {[&] { (void)kSum.combine(); }, "sum has no combine"},
      {[&] { (void)BlockOp(BlockOp::Compute{OpCode::iota}).tensor(); }, "iota has no tensor"},
      {[&] { (void)BlockOp::constant(1).tensor(); }, "constant has no tensor"},
      {[&] { (void)kMax.tensor(); }, "accumulate_max has no tensor"},
      {[&] { (void)kMax.concat_dim(); }, "accumulate_max has no dimension"},
      {[&] { (void)named.code(); }, "accumulate_max (m) has no code"},
      {[&] { (void)kCluster.concat_dim(); }, "cluster_sum has no dimension"},
      {[&] { (void)kCluster.tensor(); }, "cluster_sum has no tensor"},
      {[&] { (void)kFactor.combine(); }, "rescale factor has no combine"},
      {[&] { (void)kFactor.tensor(); }, "rescale factor has no tensor"},
      {[&] { load.compute().code = OpCode::add; }, "load has no code"},
      {[&] { sum.access().tensor = 1; }, "sum has no tensor"},
  };
  for (const Case& each : cases) {
    const std::string words = last_words(each.act);
    assert_contains(words, each.message);
    assert_contains(words, "block_op_test.cc:");  // who read it
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(each_kind_has_its_parts),
                              cmocka_unit_test(an_operator_becomes_another_one),
                              cmocka_unit_test(another_part_ends_the_program)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
