// The look-up in the saturated e-graph against Z3: on the six workload families they must agree wherever both
// decide. $QUERN_ORACLE_ADMITTED and $QUERN_ORACLE_REJECTED: questions a family, 0 for all admitted there
// are.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "core/search/saturate.h"
#include "core/search/z3_oracle.h"
#include "tests/search/programs.h"
#include "tests/support/test.h"

using namespace quern;
using Clock = std::chrono::steady_clock;

static size_t setting(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoul(text, nullptr, 10) : otherwise;
}

static std::vector<ENode> admitted_ops(const EGraph& egraph, size_t count) {
  std::vector<ENode> ops;
  for (ClassId id : egraph.classes())
    for (const ENode& node : egraph.nodes(id)) ops.push_back(node);
  std::shuffle(ops.begin(), ops.end(), std::mt19937_64(1));
  if (count != 0 && ops.size() > count) ops.resize(count);
  return ops;
}

// Operators that are not in the e-graph: half of them any operator over any classes, half an admitted one
// with one operand, or its label, replaced.
static std::vector<ENode> rejected_ops(const EGraph& egraph, size_t count) {
  std::mt19937_64 random(2);
  const std::vector<ClassId> classes = egraph.classes();
  const std::vector<ENode> known = admitted_ops(egraph, 0);
  auto pick = [&](const auto& from) { return from[random() % from.size()]; };
  std::vector<ENode> ops;
  while (ops.size() < count) {
    ENode op = pick(known);
    if (op.children.empty()) continue;
    if (ops.size() % 2 == 0)
      for (ClassId& child : op.children) child = pick(classes);
    else if (op.code == OpCode::reduce_sum && random() % 2)
      op.index = static_cast<int32_t>(random() % 5);
    else
      op.children[random() % op.children.size()] = pick(classes);
    if (egraph.lookup(op) < 0) ops.push_back(std::move(op));
  }
  return ops;
}

struct Tally {
  size_t both_yes = 0, both_no = 0, z3_undecided = 0, lookup_undecided = 0, z3_yes_beyond = 0, disagree = 0;
};

static void ask(Oracle& lookup, Oracle& z3, const std::vector<ENode>& ops, Tally& tally) {
  for (const ENode& op : ops) {
    const Answer mine = lookup.admits(op), judge = z3.admits(op);
    if (judge == Answer::undecided) ++tally.z3_undecided;
    if (mine == Answer::undecided) ++tally.lookup_undecided;
    if (mine == Answer::undecided && judge == Answer::yes) ++tally.z3_yes_beyond;
    if (mine == Answer::undecided || judge == Answer::undecided) continue;
    if (mine != judge)
      ++tally.disagree;
    else
      ++(mine == Answer::yes ? tally.both_yes : tally.both_no);
  }
}

static void lookup_and_z3_agree(void**) {
  const size_t admitted = setting("QUERN_ORACLE_ADMITTED", 300);
  const size_t rejected = setting("QUERN_ORACLE_REJECTED", 500);
  std::printf(
      "family    e-graph                nodes classes | admitted: yes undecided | rejected: no undecided by "
      "look-up, by Z3, Z3 yes | s model, questions\n");
  for (const Program& program : workloads()) {
    const bool finite = program.name != "ntrans";
    EGraph egraph = program.egraph;
    // The sums of squares of sums of ntrans have more equal forms than any limit: it stops, and says so.
    SaturationLimits limits;
    limits.time = std::chrono::minutes(2);
    if (!finite) limits.nodes = 400;
    const SaturationReport report = saturate(egraph, all_axioms(), limits);
    assert_true((report.stop == StopReason::saturated) == finite);
    LookupOracle lookup(egraph, report.stop == StopReason::saturated);

    const auto start = Clock::now();
    Z3Limits z3_limits;
    if (!finite) z3_limits.question = std::chrono::milliseconds(20);
    Z3Oracle z3(program.egraph, program.goals, egraph, all_axioms(), z3_limits);
    const auto built = Clock::now();
    if (!z3.not_a_model().empty()) std::printf("%s: %s\n", program.name.c_str(), z3.not_a_model().c_str());
    // An e-graph that stopped at a limit must be seen to be no model of the axioms.
    assert_true(z3.not_a_model().empty() == finite);

    Tally yes, no;
    ask(lookup, z3, admitted_ops(egraph, admitted), yes);
    ask(lookup, z3, rejected_ops(egraph, finite || admitted == 0 ? rejected : std::min<size_t>(rejected, 50)),
        no);
    std::printf("%-9s %-22s %5zu %7zu | %13zu %9zu | %12zu %20zu %7zu %7zu | %.2f %.2f\n",
                program.name.c_str(), stop_reason_name(report.stop), egraph.node_count(),
                egraph.classes().size(), yes.both_yes, yes.z3_undecided, no.both_no, no.lookup_undecided,
                no.z3_undecided, no.z3_yes_beyond, std::chrono::duration<double>(built - start).count(),
                std::chrono::duration<double>(Clock::now() - built).count());
    assert_int_equal(yes.disagree + no.disagree, 0);
    assert_int_equal(yes.both_no + no.both_yes, 0);
    if (!finite) continue;
    // What is decided must be nearly everything, or agreement says little.
    assert_true(yes.z3_undecided * 20 <= yes.both_yes + yes.z3_undecided);
    assert_true(no.z3_undecided * 20 <= no.both_no + no.z3_undecided);
  }
}

// A look-up that is wrong in either way is caught.
static void wrong_look_ups_are_seen(void**) {
  const Program program = workloads()[3];  // lora
  EGraph right = program.egraph;
  saturate(right, all_axioms());

  // One that forgets: without the linearity of sums the e-graph is no model, and Z3 proves what it lacks.
  std::vector<Axiom> fewer;
  for (const Axiom& axiom : all_axioms())
    if (std::string_view(axiom.name) != "sum-mul") fewer.push_back(axiom);
  EGraph poor = program.egraph;
  const SaturationReport report = saturate(poor, fewer);
  assert_true(report.stop == StopReason::saturated);
  Z3Oracle strict(program.egraph, program.goals, poor, all_axioms());
  assert_contains(strict.not_a_model(), "sum-mul does not hold");
  LookupOracle forgetful(poor, true);
  Tally tally;
  ask(forgetful, strict, rejected_ops(poor, 200), tally);
  assert_int_equal(tally.both_no, 0);
  assert_true(tally.disagree > 0);

  // One that believes too much: after a union that no axiom justifies, it admits what Z3 does not prove.
  EGraph wild = right;
  const ClassId x = wild.lookup({OpCode::input, 0, 0, {}}), weight = wild.lookup({OpCode::input, 1, 0, {}});
  wild.merge(x, weight, {});
  wild.rebuild();
  saturate(wild, all_axioms());
  Z3Oracle sober(program.egraph, program.goals, wild, all_axioms());
  size_t unproved = 0;
  for (const ENode& op : admitted_ops(wild, 0)) unproved += sober.proves(op) != Answer::yes;
  assert_true(unproved > 0);
  Z3Oracle judge(program.egraph, program.goals, right, all_axioms());
  for (const ENode& op : admitted_ops(right, 0)) assert_true(judge.proves(op) == Answer::yes);
}

// What Z3 refuses by a model it never proves.
static void proofs_and_models_exclude_each_other(void**) {
  for (const Program& program : workloads()) {
    if (program.name != "lora" && program.name != "rmsnorm") continue;
    EGraph egraph = program.egraph;
    saturate(egraph, all_axioms());
    Z3Limits limits;
    limits.question = std::chrono::milliseconds(100);
    Z3Oracle z3(program.egraph, program.goals, egraph, all_axioms(), limits);
    for (const ENode& op : rejected_ops(egraph, 20)) {
      assert_true(z3.admits(op) == Answer::no);
      assert_true(z3.proves(op) == Answer::undecided);
    }
  }
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(lookup_and_z3_agree),
                              cmocka_unit_test(wrong_look_ups_are_seen),
                              cmocka_unit_test(proofs_and_models_exclude_each_other)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
