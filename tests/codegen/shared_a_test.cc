// Operands of wgmma that are the same in all iterations and lie in shared memory (shared_a): right in the emulator on every
// path of data, with faults that are found, and refused where there is no such operand.
#include "core/schedule/enumerate.h"
#include "tests/codegen/mutations.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

KernelSchedule way(int warps, int stages) {
  KernelSchedule out;
  out.warps = {warps, 1, 1};
  out.stages = stages;
  out.wgmma = out.shared_a = true;
  return out;
}
KernelSchedule fed(int warps, int stages, bool overlap = false) {
  KernelSchedule out = way(warps, stages);
  out.tma = out.producer = true;
  out.overlap = overlap;
  return out;
}

MuGraphCase attention(const Sizes& sizes, const KernelSchedule& schedule) {
  return sized_case("attention", kAttentionGraph, kAttention, sizes, schedule);
}
// Of queries that the block makes: threads put them there. Others TMA brings, where there is a producer.
MuGraphCase attention_of_made(const Sizes& sizes, const KernelSchedule& schedule) {
  const std::string graph = with(kAttentionGraph, "s = matmul(q, k)", "z = neg(q)\ns = matmul(z, k)"),
                    mugraph = with(kAttention, "s = matmul(q0, k0)", "q1 = neg(q0)\n  s = matmul(q1, k0)");
  return sized_case("attention", graph, mugraph, sizes, schedule);
}
const Sizes kOne = {"bf16", "64", "64", "160", "1", "5"}, kTwo = {"f16", "128", "32", "160", "2", "5"},
            kWide = {"bf16", "128", "128", "64", "1", "2"};

void operands_that_stay_are_right(void**) {
  std::vector<MuGraphCase> cases = {attention(kOne, way(4, 2)),          attention(kTwo, way(4, 3)),
                                    attention(kOne, fed(4, 2)),          attention(kTwo, fed(4, 3, true)),
                                    attention(kWide, fed(8, 2)),         attention(kWide, fed(8, 3, true)),
                                    attention(kOne, fed(4, 3, true))};
  KernelSchedule moves = fed(8, 3, true);
  moves.setmaxnreg = true;
  cases.push_back(attention(kWide, moves));
  for (const MuGraphCase& each : cases)
    assert_int_equal(emitted(each).source.find("tma_load<3, true>(s") != std::string::npos,
                     each.schedule.kernels[0].producer);
  for (const KernelSchedule& each : {way(4, 2), fed(4, 2), fed(4, 3, true)}) {
    cases.push_back(attention_of_made(kTwo, each));
    assert_true(emitted(cases.back()).source.find("fence_proxy_async();") != std::string::npos);
  }
  all_are_right(cases);
}

// Heads of no power of two: rows end before the tile's room, which TMA fills with zeros, steps and columns before it.
void heads_of_any_size_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* inner : {"24", "40", "72", "80", "96"})
    for (const KernelSchedule& each : {fed(4, 2), fed(4, 3, true)}) {
      cases.push_back(attention({"f16", "64", inner, "160", "1", "5"}, each));
      cases.push_back(cases.back());
      cases.back().schedule.kernels[0].shared_a = false;
      for (size_t last : {size_t{1}, size_t{2}}) {
        const std::string source = emitted(cases[cases.size() - last]).source;
        assert_int_equal(source.find("wgmma<f16, 96>(") != std::string::npos, inner == std::string("96"));
      }
    }
  all_are_right(cases);
}

void planted_faults_are_found(void**) {
  const std::vector<const char*> kUnordered = {"no synchronisation between", "race", "proxy"};
  are_found(attention_of_made(kOne, fed(4, 3, true)), {{"fence_proxy_async();", "", kUnordered},
                                                       {"barrier_of<128>();", "", kUnordered}});
  const char kWait[] = "mbarrier_wait(arrived_once, 0);";
  are_found(attention(kOne, fed(4, 3, true)),
            {{kWait, "", {"asynchronous copy"}},
             {kWait, "mbarrier_wait(arrived_once, 1);", {"asynchronous copy", "deadlock"}},
             {"mbarrier_arrive_expect(arrived_once, 8192);", "mbarrier_arrive_expect(arrived_once, 4096);", {"bytes"}},
             {"mbarrier_init(arrived_once, 1);", "mbarrier_init(arrived_once, 2);", {"deadlock"}}});
}

// Each tile of a block that stays has its own: the producer brings it when all warps have read that of the tile before.
KernelSchedule staying(KernelSchedule fed) {
  fed.persistent = 1;
  return fed;
}
void tiles_of_blocks_that_stay_have_their_own(void**) {
  KernelSchedule moves = staying(fed(8, 3, true));
  moves.setmaxnreg = true;
  const std::vector<MuGraphCase> cases = {attention(kTwo, staying(fed(4, 2))),
                                          attention(kTwo, staying(fed(4, 3, true))), attention(kTwo, moves)};
  all_are_right(cases);
  are_found(attention(kTwo, staying(fed(4, 3, true))),
            {{"mbarrier_wait(once_read, turn & 1 ^ 1);",
              "",
              {"asynchronous copy", "race", "no synchronisation", "bytes"}},
             {"mbarrier_arrive(once_read);", "", {"deadlock"}},
             {"mbarrier_wait(arrived_once, turn & 1);", "", {"asynchronous copy"}}});
}

// Sums over rows that the loop itself loads; queries that blocks that stay would make.
void others_are_refused(void**) {
  const MuGraphCase norm = sized_case("norm", kNormGraph, kNorm, {"f16", "64", "256", "128", "1", "4"}, way(4, 2));
  assert_error(emit(norm), ErrorCode::UNSUPPORTED, "shared_a is for products by wgmma");
  assert_error(emit(attention_of_made(kTwo, staying(fed(4, 2)))), ErrorCode::UNSUPPORTED,
               "shared memory that threads write");
  KernelSchedule without = way(4, 2);
  without.wgmma = false;
  assert_error(emit(attention(kOne, without)), ErrorCode::INVALID_ARGUMENT, "shared_a");
  const std::vector<Schedule> all = enumerate_schedules(norm.mugraph, **find_target("sm_90a"));
  for (const Schedule& each : all) assert_false(each.kernels[0].shared_a);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(operands_that_stay_are_right), cmocka_unit_test(heads_of_any_size_are_right),
      cmocka_unit_test(planted_faults_are_found), cmocka_unit_test(tiles_of_blocks_that_stay_have_their_own),
      cmocka_unit_test(others_are_refused)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
