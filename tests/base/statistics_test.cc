// Medians and rank correlations of small lists.
#include "core/base/statistics.h"

#include <cmath>

#include "tests/support/test.h"

namespace {

using namespace quern;

void the_median_is_the_upper_one_in_the_middle(void**) {
  assert_true(std::isnan(median({})));
  assert_true(median({3}) == 3);
  assert_true(median({9, 1, 5}) == 5);
  assert_true(median({4, 1, 3, 2}) == 3);
}

void ranks_alike_or_the_other_way_round(void**) {
  assert_true(*rank_correlation({{1, 10}, {2, 200}, {3, 3000}}) == 1);
  assert_true(*rank_correlation({{1, 3}, {2, 2}, {3, 1}}) == -1);
  // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
  assert_true(std::fabs(*rank_correlation({{1, 1}, {5, 2}, {5, 3}, {9, 4}}) - std::sqrt(0.9)) < 1e-12);
  assert_false(rank_correlation({}).has_value());
  assert_false(rank_correlation({{1, 2}}).has_value());
  assert_false(rank_correlation({{1, 2}, {2, 2}}).has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_median_is_the_upper_one_in_the_middle),
      cmocka_unit_test(ranks_alike_or_the_other_way_round),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
