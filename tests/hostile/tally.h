// What the tests of the attack share: seeds from the environment, and the verdict over a tally.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "tests/hostile/isolated.h"
#include "tests/support/test.h"

namespace quern {

inline uint64_t from_environment(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : fallback;
}

inline void assert_nothing_found(const Tally& tally) {
  for (const auto& [what, count] : tally.counts)
    print_message("%s: %llu\n", what.c_str(), static_cast<unsigned long long>(count));
  for (const Finding& finding : tally.findings)
    std::fprintf(stderr, "%s:\n%s\n", finding.cause.c_str(),
                 finding.text.c_str());  // print_error() cuts it off
  assert_int_equal(tally.findings.size(), 0);
}

}  // namespace quern
