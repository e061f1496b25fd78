// A few hundred random small graphs through the emulator against the float reference. $QUERN_RANDOM_FIRST and
// $QUERN_RANDOM_COUNT choose other seeds.
#include <cstdlib>

#include "core/graph/text.h"
#include "tests/codegen/emulated.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

uint64_t from_environment(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : fallback;
}

void random_graphs_are_right(void**) {
  const uint64_t first = from_environment("QUERN_RANDOM_FIRST", 1),
                 count = from_environment("QUERN_RANDOM_COUNT", 300);
  std::vector<EmulatedCase> cases;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const int most = seed % 4 == 0 ? 24 : 8;  // now and then a larger graph
    cases.push_back({"seed " + std::to_string(seed), random_graph(seed, {.max_ops = most}), seed});
  }
  const std::vector<std::string> failures = find_failures(cases);
  for (const std::string& failure : failures) print_error("%s\n", failure.c_str());
  assert_int_equal(failures.size(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(random_graphs_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
