// Linear algebra over F2 against enumeration of all vectors.
#include "core/schedule/f2.h"

#include <random>
#include <set>

#include "tests/support/test.h"

using namespace quern;

static std::set<uint64_t> members(std::span<const uint64_t> vectors) {
  std::set<uint64_t> result = {0};
  for (uint64_t v : vectors) {
    std::set<uint64_t> more;
    for (uint64_t member : result) more.insert(member ^ v);
    result.merge(more);
  }
  return result;
}

static F2Matrix random_matrix(std::mt19937_64& random, int rows, int columns) {
  F2Matrix result{rows, {}};
  for (int i = 0; i < columns; ++i) result.columns.push_back(random() & ((uint64_t{1} << rows) - 1));
  return result;
}

static void rank_is_the_size_of_the_span(void**) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const F2Matrix a = random_matrix(random, i % 7, i % 5);
    assert_int_equal(members(a.columns).size(), 1 << f2_rank(a.columns));
    assert_int_equal(members(f2_kernel(a)).size(), 1 << (i % 5 - f2_rank(a.columns)));
    for (uint64_t x : f2_kernel(a)) assert_int_equal(a.apply(x), 0);
  }
}

static void solutions_solve_and_are_missed_only_where_there_is_none(void**) {
  std::mt19937_64 random(2);
  int solved = 0, unsolved = 0;
  for (int i = 0; i < 400; ++i) {
    const F2Matrix a = random_matrix(random, 4, 4), b = random_matrix(random, 4, 1);
    const std::optional<F2Matrix> x = f2_solve(a, b);
    assert_int_equal(x.has_value(), members(a.columns).contains(b.columns[0]));
    if (x) assert_int_equal(a.apply(x->columns[0]), b.columns[0]);
    ++(x ? solved : unsolved);
  }
  assert_true(solved > 50 && unsolved > 50);
}

static void a_solution_uses_the_earliest_columns(void**) {
  const F2Matrix a{2, {1, 1, 2, 3}};
  assert_true(f2_solve(a, F2Matrix{2, {1, 3}})->columns == (std::vector<uint64_t>{1, 5}));
}

static void intersections_have_the_members_of_both(void**) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    const F2Matrix a = random_matrix(random, 5, i % 5), b = random_matrix(random, 5, i / 5 % 5);
    const std::vector<uint64_t> both = f2_intersection(a.columns, b.columns);
    std::set<uint64_t> expected;
    for (uint64_t v : members(a.columns))
      if (members(b.columns).contains(v)) expected.insert(v);
    assert_true(members(both) == expected);
    assert_int_equal(f2_rank(both), both.size());
  }
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(rank_is_the_size_of_the_span),
                              cmocka_unit_test(solutions_solve_and_are_missed_only_where_there_is_none),
                              cmocka_unit_test(a_solution_uses_the_earliest_columns),
                              cmocka_unit_test(intersections_have_the_members_of_both)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
