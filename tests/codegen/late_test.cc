// Products that are made a turn late: in the emulator against the float reference.
#include "core/codegen/mugraph_emitter.h"
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

bool is_late(const MuGraphCase& test) {
  const auto target = find_target(test.target);
  assert_ok(target);
  const auto emitted = emit_mugraph(test.graph, test.mugraph, test.schedule, **target);
  assert_ok(emitted);
  return emitted->kernels.find("late_tile") != std::string::npos;
}

KernelSchedule way(std::array<int, 3> warps, int stages, bool tma) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tma = tma;
  out.wgmma = true;
  return out;
}

void attention_is_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "128", "64", "256", "2", "4"},
                             {"bf16", "128", "64", "320", "1", "5"},
                             {"f16", "100", "40", "300", "1", "5"}})
    for (const KernelSchedule& each : {way({4, 1, 1}, 4, true), way({4, 1, 1}, 4, false),
                                       way({8, 1, 1}, 4, true), way({4, 2, 1}, 4, true)}) {
      cases.push_back(sized_case("attention", kAttentionGraph, kAttention, sizes, each));
      assert_true(is_late(cases.back()));
    }
  all_are_right(cases);
}

// Stages or turns for it are missing, or a second product behind the first.
void others_are_in_time(void**) {
  const Sizes sizes = {"f16", "64", "64", "256", "1", "4"};
  assert_false(is_late(sized_case("attention", kAttentionGraph, kAttention, sizes, way({4, 1, 1}, 3, true))));
  assert_false(is_late(sized_case("attention", kAttentionGraph, kAttention, sizes, way({4, 1, 1}, 5, true))));
  assert_false(is_late(sized_case("norm", kNormGraph, kNorm, sizes, way({4, 1, 1}, 4, true))));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(attention_is_right), cmocka_unit_test(others_are_in_time)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
