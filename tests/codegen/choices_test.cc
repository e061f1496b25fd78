// Blocks whose choices an optimizer has made: no barrier and no byte more than with the greedy rules, the
// same text again from the schedule alone, and right in the emulator.
#include "core/codegen/mugraph_emitter.h"
#include "core/schedule/z3_optimizer.h"
#include "tests/codegen/mugraph_cases.h"
#include "tests/mugraph/files.h"

namespace {

using namespace quern;

const Target& sm80() { return **find_target("sm_80"); }

std::vector<Schedule> schedules_of(const MuGraph& mugraph) {
  std::vector<Schedule> out;
  for (int stages : {0, 2})
    for (const std::array<int, 3>& warps : {std::array<int, 3>{1, 1, 4}, {2, 2, 1}}) {
      out.push_back(default_schedule(mugraph));
      for (KernelSchedule& kernel : out.back().kernels) {
        kernel.stages = stages;
        kernel.warps = warps;
      }
    }
  return out;
}

void optimized_blocks_cost_no_more_and_can_be_made_again(void**) {
  const auto optimizer = make_z3_optimizer(kChoiceLimit);
  std::vector<MuGraphCase> cases;
  int blocks = 0;
  for (const MuGraphFile& file : mugraph_files())
    for (const Schedule& schedule : schedules_of(file.mugraph)) {
      const auto greedy = emit_mugraph(file.graph, file.mugraph, schedule, sm80());
      if (!greedy) continue;
      const auto best = emit_mugraph(file.graph, file.mugraph, schedule, sm80(), optimizer.get());
      assert_ok(best);
      for (size_t b = 0; b < best->blocks.size(); ++b) {
        const BlockCosts &least = best->blocks[b].costs, &own = greedy->blocks[b].costs;
        assert_true(least.barriers_once <= own.barriers_once && own.barriers_once <= own.listed_once);
        assert_true(least.barriers_per_iteration <= own.barriers_per_iteration && own.barriers_per_iteration <= own.listed_per_iteration);
        ++blocks;
      }
      const auto printed = parse_schedule(print_schedule(with_choices(schedule, *best)));
      assert_ok(printed);
      const auto again = emit_mugraph(file.graph, file.mugraph, *printed, sm80());
      assert_ok(again);
      assert_text_equal(again->kernels, best->kernels);
      if (again->kernels != greedy->kernels && file.name.find("_small") != std::string::npos)
        cases.push_back({file.name + ", " + print_schedule(*printed), file.graph, file.mugraph, *printed});
    }
  assert_true(blocks > 40);
  all_are_right(cases);
}

void choices_of_another_block_are_refused(void**) {
  for (const MuGraphFile& file : mugraph_files()) {
    if (file.name != "rmsnorm_small-fused") continue;
    for (const BlockChoices& wrong : {BlockChoices{{}, {0, 0}, {}}, {{}, {}, {16}}}) {
      Schedule schedule = schedules_of(file.mugraph)[0];
      schedule.kernels[0].choices = wrong;
      assert_error(emit_mugraph(file.graph, file.mugraph, schedule, sm80()).status(),
                   ErrorCode::INVALID_ARGUMENT, "are not for this block");
    }
    return;
  }
  fail_test("rmsnorm_small-fused is gone");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(optimized_blocks_cost_no_more_and_can_be_made_again),
                              cmocka_unit_test(choices_of_another_block_are_refused)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
