// The layouts of a block's tensors: whatever is chosen, the block computes the same, and conversions cost
// what the choice was told.
#include <random>

#include "core/codegen/mugraph_emitter.h"
#include "tests/codegen/mugraph_cases.h"
#include "tests/mugraph/files.h"

namespace {

using namespace quern;

const Target& sm80() { return **find_target("sm_80"); }

std::vector<Schedule> schedules_of(const MuGraph& mugraph) {
  std::vector<Schedule> out;
  for (int stages : {0, 2})
    for (const std::array<int, 3>& warps : {std::array<int, 3>{1, 1, 2}, {1, 1, 4}, {2, 2, 1}}) {
      out.push_back(default_schedule(mugraph));
      for (KernelSchedule& kernel : out.back().kernels) {
        kernel.stages = stages;
        kernel.warps = warps;
      }
    }
  return out;
}

// A conversion that two operators share was counted for both.
void conversions_cost_what_the_choice_was_told(void**) {
  int same = 0, blocks = 0;
  for (const MuGraphFile& file : mugraph_files())
    for (const Schedule& schedule : schedules_of(file.mugraph)) {
      const auto emitted = emit_mugraph(file.graph, file.mugraph, schedule, sm80());
      if (!emitted) continue;
      for (const EmittedBlock& block : emitted->blocks) {
        assert_true(block.costs.conversion_cycles <= block.costs.planned_conversion_cycles);
        assert_true(block.costs.planned_conversion_cycles <= block.costs.layout_cycles);
        same += block.costs.conversion_cycles == block.costs.planned_conversion_cycles;
        ++blocks;
      }
    }
  assert_true(blocks > 100);
  assert_true(same * 4 > blocks * 3);
}

void blocks_compute_the_same_with_other_layouts(void**) {
  std::mt19937_64 random(21);
  std::vector<MuGraphCase> cases;
  std::set<std::string> names;
  for (const MuGraphFile& file : mugraph_files()) {
    if (file.name.find("_b") != std::string::npos) continue;
    for (const Schedule& schedule : schedules_of(file.mugraph)) {
      const auto usual = emit_mugraph(file.graph, file.mugraph, schedule, sm80());
      if (!usual) continue;
      Schedule other = schedule;
      for (const EmittedBlock& block : usual->blocks)
        for (int candidates : block.layout_candidates)
          other.kernels[block.kernel].choices.layouts.push_back(
              static_cast<int>(random() % static_cast<size_t>(candidates)));
      const auto emitted = emit_mugraph(file.graph, file.mugraph, other, sm80());
      assert_ok(emitted);
      for (const EmittedBlock& block : emitted->blocks)
        assert_true(block.costs.conversion_cycles <= block.costs.planned_conversion_cycles);
      if (emitted->kernels == usual->kernels) continue;
      cases.push_back({file.name + ", " + print_schedule(other), file.graph, file.mugraph, other});
      names.insert(file.name);
    }
  }
  print_message("%zu of %zu muGraphs\n", cases.size(), names.size());
  assert_true(names.size() >= 6 && cases.size() >= 20);
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(conversions_cost_what_the_choice_was_told),
                              cmocka_unit_test(blocks_compute_the_same_with_other_layouts)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
