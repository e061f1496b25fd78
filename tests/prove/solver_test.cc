// Random conditions over a few small variables: what the solver, the counts and linear forms say of them is
// what trying all values says.
#include "core/prove/solver.h"

#include <functional>

#include "core/base/random.h"
#include "core/kernel/builder.h"
#include "core/prove/arithmetic.h"
#include "core/prove/count.h"
#include "tests/support/test.h"

namespace quern::proof {
namespace {

using namespace ir;

constexpr int64_t kExtents[] = {12, 7, 16};

struct Variables {
  std::vector<Symbol> symbols;
  Ranges ranges{LaunchShape{}};

  Variables() {
    for (int64_t extent : kExtents) {
      symbols.push_back(make_variable("v" + std::to_string(symbols.size()), Scalar::i32));
      ranges.set(*symbols.back(), {0, extent - 1});
    }
  }
  void for_each(const std::function<void(const Values&)>& visit) const {
    for (int64_t a = 0; a < kExtents[0]; ++a)
      for (int64_t b = 0; b < kExtents[1]; ++b)
        for (int64_t c = 0; c < kExtents[2]; ++c)
          visit({{symbols[0].get(), a}, {symbols[1].get(), b}, {symbols[2].get(), c}});
  }
};

Expr same_type(const Expr& expr) { return cast(expr, Scalar::i64); }

Expr random_number(Random& random, const Variables& variables, int depth) {
  auto again = [&] { return random_number(random, variables, depth - 1); };
  if (depth == 0 || random.one_in(5))
    return random.one_in(3) ? Expr(static_cast<int64_t>(random.below(20)))
                            : Expr(variables.symbols[random.below(3)]);
  switch (random.below(10)) {
    case 0:
      return again() / static_cast<int64_t>(1 + random.below(9));
    case 1:
      return again() % static_cast<int64_t>(1 + random.below(9));
    case 2:
      return again() & static_cast<int64_t>(random.below(16));
    case 3:
      return again() ^ again();
    case 4:
      return again() * static_cast<int64_t>(random.below(9));
    case 5:
      return again() - again();
    case 6:
      return again() >> static_cast<int64_t>(random.below(3));
    case 7:
      return select(less(again(), again()), same_type(again()), same_type(again()));
    case 8:
      return cast(again(), random.one_in(2) ? Scalar::u32 : Scalar::i64);
    default:
      return again() + again();
  }
}

Expr random_condition(Random& random, const Variables& variables) {
  auto number = [&] { return same_type(random_number(random, variables, 3)); };
  switch (random.below(4)) {
    case 0:
      return equal(number(), number());
    case 1:
      return both(less(number(), number()), less_equal(number(), number()));
    case 2:
      return either(equal(number(), number()), less(number(), number()));
    default:
      return less(number(), number());
  }
}

void solver_agrees_with_trying(void**) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  const Variables variables;
  Random random(1);
  int met = 0, never = 0;
  for (int i = 0; i < 150; ++i) {
    const std::vector<Expr> conditions = {random_condition(random, variables),
                                          random_condition(random, variables)};
    int64_t count = 0;
    auto holds = [&](const Values& values) {
      return *evaluate(conditions[0], values) && *evaluate(conditions[1], values);
    };
    variables.for_each([&](const Values& values) { count += holds(values); });
    const SolverAnswer answer = solver->ask(conditions, variables.ranges, std::chrono::seconds(10));
    assert_true(answer.certain);
    if ((answer.kind == SolverAnswer::Kind::sometimes) != (count > 0))
      fail_test(print(conditions[0]) + " and " + print(conditions[1]));
    if (count > 0) {
      ++met;
      Values values = answer.values;
      for (const Symbol& symbol : variables.symbols) values.try_emplace(symbol.get(), 0);
      assert_true(holds(values));
    } else {
      ++never;
    }
    const auto counted = count_values(variables.symbols, conditions, variables.ranges, 1 << 20);
    if (!counted || *counted != count)
      fail_test("count of " + print(conditions[0]) + " and " + print(conditions[1]));
  }
  assert_true(met > 30 && never > 30);
}

// What is known once conditions hold is true wherever they do.
void assumed_ranges_hold(void**) {
  const Variables variables;
  Random random(3);
  int narrower = 0;
  for (int i = 0; i < 1500; ++i) {
    const Expr condition = random_condition(random, variables);
    if (!never_wraps(condition, variables.ranges)) continue;
    const bool holds = random.one_in(2);
    Ranges known = variables.ranges;
    known.assume(condition, holds);
    variables.for_each([&](const Values& values) {
      if ((*evaluate(condition, values) != 0) != holds) return;
      for (const Symbol& symbol : variables.symbols) {
        const Interval range = known.of(Expr(symbol));
        const int64_t value = values.at(symbol.get());
        if (value < range.low || value > range.high) fail_test(print(condition));
      }
    });
    for (const Symbol& symbol : variables.symbols)
      narrower += !(known.of(Expr(symbol)) == variables.ranges.of(Expr(symbol)));
  }
  assert_true(narrower > 50);
}

void linear_forms_and_multiples_are_right(void**) {
  const Variables variables;
  Random random(2);
  int multiples = 0;
  for (int i = 0; i < 1000; ++i) {
    const Expr expr = random_number(random, variables, 4);
    if (!never_wraps(expr, variables.ranges)) continue;
    const Expr form = sum_of(linear_form(expr));
    bool all = true;
    variables.for_each([&](const Values& values) {
      assert_int_equal(*evaluate(expr, values), *evaluate(form, values));
      all &= *evaluate(expr, values) % 4 == 0;
    });
    if (is_multiple(expr, 4)) {
      ++multiples;
      assert_true(all);
    }
  }
  assert_true(multiples > 20);
}

}  // namespace
}  // namespace quern::proof

int main() {
  using namespace quern::proof;
  const CMUnitTest tests[] = {cmocka_unit_test(solver_agrees_with_trying),
                              cmocka_unit_test(assumed_ranges_hold),
                              cmocka_unit_test(linear_forms_and_multiples_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
