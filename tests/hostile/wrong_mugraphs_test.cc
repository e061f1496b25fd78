// Mutants of searched muGraphs: the verifier accepts none that is different. $QUERN_HOSTILE_FIRST and
// $QUERN_HOSTILE_COUNT choose other seeds.
#include "tests/hostile/wrong_mugraphs.h"

#include "tests/hostile/tally.h"

namespace {

using namespace quern;

void no_wrong_mutant_is_accepted(void**) {
  const uint64_t first = from_environment("QUERN_HOSTILE_FIRST", 1),
                 count = from_environment("QUERN_HOSTILE_COUNT", 24);
  const Tally tally = attack_verifier(first, count, 12);
  assert_nothing_found(tally);
  assert_true(tally.count("mutants") > 10 * count);
  assert_true(tally.count("different, rejected") > tally.count("mutants") / 3);
  assert_true(tally.count("equal, accepted") > 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(no_wrong_mutant_is_accepted)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
