// The greedy answers to the three choices of a block: they keep the rules, no answer goes below the bounds,
// and wrong answers are refused.
#include <random>

#include "tests/schedule/brute_force.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

void greedy_memory_is_between_bound_and_sum(void**) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto buffers = random_buffers(random, 5);
    const MemoryPlan plan = plan_memory(buffers);
    const auto peak = memory_peak(buffers, plan.offsets);
    assert_ok(peak);
    assert_int_equal(*peak, plan.peak);
    const int64_t least = least_peak(buffers);
    assert_true(memory_bound(buffers) <= least);
    assert_true(least <= plan.peak);
  }
}

void memory_is_used_again(void**) {
  std::vector<MemoryBuffer> buffers;
  for (int i = 0; i < 100; ++i) buffers.push_back({1000, i, i + 1, 256});
  assert_int_equal(plan_memory(buffers).peak, 2024);
  assert_int_equal(plan_memory({}).peak, 0);
}

void wrong_offsets_are_refused(void**) {
  const std::vector<MemoryBuffer> buffers = {{32, 0, 1, 16}, {32, 1, 2, 16}, {64, 2, 3, 16}};
  const auto at = [&](std::vector<int64_t> offsets) { return memory_peak(buffers, offsets); };
  assert_ok(at({0, 32, 64}));
  assert_error(at({0, 16, 64}).status(), ErrorCode::INVALID_ARGUMENT, "buffers 0 and 1 overlap");
  assert_error(at({0, 40, 64}).status(), ErrorCode::INVALID_ARGUMENT, "not aligned");
  assert_error(at({0, 32}).status(), ErrorCode::INVALID_ARGUMENT, "2 offsets for 3 buffers");
  assert_int_equal(*at({0, 64, 0}), 96);  // the first is no longer needed
}

void order_by_depth_has_the_fewest_barriers(void**) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    const OrderProblem problem = random_order(random, 6);
    const OrderCost least = least_order(problem), bound = order_bound(problem);
    const OrderPlan listed = order_as_listed(problem), chosen = order_steps(problem);
    assert_int_equal(order_by_depth(problem).cost.barriers, least.barriers);
    assert_int_equal(bound.barriers, least.barriers);
    assert_true(bound.bytes <= least.bytes);
    assert_true(least <= chosen.cost && chosen.cost <= listed.cost);
    for (size_t i = 0; i < listed.order().size(); ++i) assert_int_equal(listed.order()[i], i);
  }
}

// Two exchanges one after the other in the list: put 0, get 1; put 2, get 3; both are used by 4.
void exchanges_share_a_barrier(void**) {
  OrderProblem problem{
      5, {{0, 1, true}, {2, 3, true}, {1, 4, false}, {3, 4, false}}, {{0, 1, 64}, {2, 3, 32}}};
  assert_int_equal(order_as_listed(problem).cost.barriers, 2);
  const OrderPlan plan = order_steps(problem);
  assert_int_equal(plan.cost.barriers, 1);
  assert_int_equal(plan.cost.bytes, 96);
  assert_true(plan.order() == (std::vector<int>{0, 2, 1, 3, 4}));
  assert_error(order_cost(problem, std::vector<int>{0, 0, 0, 1, 1}).status(), ErrorCode::INVALID_ARGUMENT,
               "step 1 comes too early after step 0");
  assert_false(order_cost(problem, std::vector<int>{0, 1}).ok());
  assert_false(order_cost(problem, std::vector<int>{-1, 1, 0, 1, 1}).ok());
  assert_int_equal(order_steps({}).cost.barriers, 0);
}

void greedy_layouts_are_valid_and_above_the_bound(void**) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 300; ++round) {
    const LayoutProblem problem = random_layouts(random, 5);
    const LayoutPlan plan = choose_layouts(problem);
    const int64_t least = least_layouts(problem);
    assert_true(layout_bound(problem) <= least);
    assert_true(least <= plan.cost);
    assert_int_equal(*layout_cost(problem, plan.candidates), plan.cost);
  }
  const LayoutProblem one{{{5, 3}}, {}};
  assert_int_equal(choose_layouts(one).candidates[0], 1);
  assert_false(layout_cost(one, std::vector<int>{2}).ok());
  assert_false(layout_cost(one, std::vector<int>{}).ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(greedy_memory_is_between_bound_and_sum),
                              cmocka_unit_test(memory_is_used_again),
                              cmocka_unit_test(wrong_offsets_are_refused),
                              cmocka_unit_test(order_by_depth_has_the_fewest_barriers),
                              cmocka_unit_test(exchanges_share_a_barrier),
                              cmocka_unit_test(greedy_layouts_are_valid_and_above_the_bound)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
