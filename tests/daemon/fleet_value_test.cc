// Which of two plans of one key the fleet keeps.
#include "daemon/fleet_value.h"

#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr const char *kOne = "NVIDIA H200, driver 580.1", *kOther = "NVIDIA H100, driver 580.1";

void assert_beats(const Rank& better, const Rank& worse) {
  assert_true(better.beats(worse));
  assert_false(worse.beats(better));
}

void tiers_and_times_decide(void**) {
  assert_beats({Tier::modelled, "", 0, 0, 0}, {Tier::baseline, kOne, 100, kSearched, 3});
  assert_beats({Tier::measured, kOne, 100, 1, 0}, {Tier::measured, kOne, 200, kSearched, 3});
  // Times on different devices do not compare.
  assert_beats({Tier::measured, kOne, 200, kSearched, 0}, {Tier::measured, kOther, 100, 1, 0});
  const Rank same{Tier::measured, kOne, 100, 1, 1};
  assert_false(same.beats(same));
}

// One that was published early has no time of its own.
void what_was_measured_to_the_end_beats_what_was_not(void**) {
  assert_beats({Tier::measured, kOne, 200, kSearched, 0}, {Tier::measured, "", 0, kSearched, 0});
  // Of what is only modelled, a search that has ended says more than a time.
  assert_beats({Tier::modelled, "", 0, kSearched, 0}, {Tier::modelled, "model", 100, 1, 0});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(tiers_and_times_decide),
                              cmocka_unit_test(what_was_measured_to_the_end_beats_what_was_not)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
