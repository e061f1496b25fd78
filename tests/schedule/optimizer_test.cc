// Z3 against trying everything: what it proves to be best is best, and it improves on what the greedy rules
// miss.
#include <random>

#include "core/schedule/z3_optimizer.h"
#include "tests/schedule/brute_force.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr std::chrono::milliseconds kEnough{20000};  // that small problems are always proven

void memory_agrees_with_brute_force(void**) {
  const auto optimizer = make_z3_optimizer(kEnough);
  std::mt19937_64 random(17);
  int improved = 0;
  for (int round = 0; round < 150; ++round) {
    const auto buffers = random_buffers(random, 6);
    const auto answer = optimizer->memory(buffers);
    assert_true(answer.proven);
    assert_int_equal(answer.plan.peak, least_peak(buffers));
    assert_int_equal(*memory_peak(buffers, answer.plan.offsets), answer.plan.peak);
    improved += answer.plan.peak < plan_memory(buffers).peak;
  }
  assert_true(improved > 0);
}

void order_agrees_with_brute_force(void**) {
  const auto optimizer = make_z3_optimizer(kEnough);
  std::mt19937_64 random(19);
  int improved = 0;
  for (int round = 0; round < 100; ++round) {
    const OrderProblem problem = random_order(random, 6);
    const auto answer = optimizer->order(problem);
    assert_true(answer.proven);
    assert_true(answer.plan.cost == least_order(problem));
    assert_true(*order_cost(problem, answer.plan.levels) == answer.plan.cost);
    improved += answer.plan.cost < order_steps(problem).cost;
  }
  assert_true(improved > 0);
}

void layouts_agree_with_brute_force(void**) {
  const auto optimizer = make_z3_optimizer(kEnough);
  std::mt19937_64 random(23);
  int improved = 0;
  for (int round = 0; round < 60; ++round) {
    const LayoutProblem problem = random_layouts(random, 6);
    const auto answer = optimizer->layouts(problem);
    assert_true(answer.proven);
    assert_int_equal(answer.plan.cost, least_layouts(problem));
    assert_int_equal(*layout_cost(problem, answer.plan.candidates), answer.plan.cost);
    improved += answer.plan.cost < choose_layouts(problem).cost;
  }
  assert_true(improved > 0);
}

// However short the time, there is an answer that is no worse than the greedy one.
void the_time_limit_leaves_the_greedy_answer(void**) {
  const auto optimizer = make_z3_optimizer(std::chrono::milliseconds(1));
  std::mt19937_64 random(29);
  for (int round = 0; round < 10; ++round) {
    const auto buffers = random_buffers(random, 40);
    const auto memory = optimizer->memory(buffers);
    assert_ok(memory_peak(buffers, memory.plan.offsets));
    assert_true(memory.plan.peak <= plan_memory(buffers).peak);
    const OrderProblem problem = random_order(random, 40);
    assert_true(optimizer->order(problem).plan.cost <= order_steps(problem).cost);
    const LayoutProblem layouts = random_layouts(random, 40);
    assert_true(optimizer->layouts(layouts).plan.cost <= choose_layouts(layouts).cost);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(memory_agrees_with_brute_force),
                              cmocka_unit_test(order_agrees_with_brute_force),
                              cmocka_unit_test(layouts_agree_with_brute_force),
                              cmocka_unit_test(the_time_limit_leaves_the_greedy_answer)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
