// Shuffle plans on all kinds of small warps: whatever is planned gives the destination.
#include "core/schedule/shuffle.h"

#include <numeric>

#include "tests/schedule/layout_samples.h"
#include "tests/schedule/layouts.h"
#include "tests/schedule/simulate.h"
#include "tests/support/test.h"

using namespace quern;

static std::vector<int> all_registers(const Layout& layout) {
  std::vector<int> result(size_t{1} << layout.input_bits(kRegister));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

static void expect_converts(const ShufflePlan& plan, const Layout& source, const Layout& destination) {
  RegisterFile registers = empty_registers(destination);
  run_shuffle(plan, all_registers(destination), fill(source), registers);
  assert_true(registers == fill(destination));
}

// In a bijection within one warp every round can be a permutation of the lanes: a plan always exists, with
// one round for each word.
static void bijections_always_have_a_plan(void**) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 400; ++i) {
    const int registers = i % 4, lanes = 1 + i % 5;
    const Layout source = random_bijection(random, registers, lanes, 0, registers, lanes);
    const Layout destination = random_bijection(random, registers, lanes, 0, registers, lanes);
    for (int word_bits : {0, 1, 2}) {
      const std::optional<ShufflePlan> plan = plan_shuffle(source, destination, word_bits);
      assert_true(plan.has_value());
      assert_true(plan->word_bits <= word_bits);
      assert_int_equal(plan->rounds.size() << plan->word_bits, 1 << registers);
      expect_converts(*plan, source, destination);
    }
  }
}

// Every pair of maps (1 register bit, 2 lane bits, 1 warp bit) -> 2 bits.
static void all_small_layouts(void**) {
  int planned = 0, refused = 0;
  std::vector<Layout> layouts;
  for (uint64_t code = 0; code < 256; ++code)
    layouts.push_back(Layout({{"register", 1}, {"lane", 2}, {"warp", 1}}, {{"m", 2}},
                             {2, {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6}}));
  for (const Layout& source : layouts)
    for (const Layout& destination : layouts) {
      if (destination.columns(kRegister)[0] == 0) continue;  // independent registers are asked for
      const std::optional<ShufflePlan> plan = plan_shuffle(source, destination, 0);
      const bool crosses = [&] {
        F2Span own(source.columns(kRegister));
        own.add_all(source.columns(kLane));
        return !own.contains(destination.matrix().columns[0]) ||
               !own.contains(destination.matrix().columns[1]) ||
               !own.contains(destination.matrix().columns[2]) ||
               !own.contains(destination.matrix().columns[3] ^ source.matrix().columns[3]);
      }();
      if (plan) {
        assert_false(crosses);
        expect_converts(*plan, source, destination);
        ++planned;
      } else if (!crosses) {
        ++refused;
      }
    }
  // Refused within a warp: a lane would have to offer two words at once. That is rare.
  print_message("%d planned, %d refused within a warp\n", planned, refused);
  assert_true(planned > 10000 && refused * 50 < planned);
}

// An m16n8 accumulator as the A operand of the next product (attention): no shuffle, the elements are there.
static void chained_products_stay_in_their_lanes(void**) {
  const DimSize sizes[] = {{"n", 16}, {"m", 16}};
  const Layout c = cover(mma_c("m", "n"), sizes), a = mma_a(MmaKind::m16n8k16_16bit, "m", "n");
  const std::optional<ShufflePlan> plan = plan_shuffle(c, a, 1);
  assert_true(plan.has_value() && plan->is_register_permutation());
  expect_converts(*plan, c, a);
}

// tf32: the accumulator has neighbours in a lane, the operand does not.
static void the_tf32_operand_takes_shuffles(void**) {
  const Layout c = mma_c("m", "n"), a = mma_a(MmaKind::m16n8k8_tf32, "m", "n");
  const std::optional<ShufflePlan> plan = plan_shuffle(c, a, 0);
  assert_true(plan.has_value());
  assert_int_equal(plan->rounds.size(), 4);
  assert_true(plan->shuffles() <= 4);
  expect_converts(*plan, c, a);
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(bijections_always_have_a_plan),
                              cmocka_unit_test(all_small_layouts),
                              cmocka_unit_test(chained_products_stay_in_their_lanes),
                              cmocka_unit_test(the_tf32_operand_takes_shuffles)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
