// What the rounds of interleaved timings say.
#pragma once

#include <span>
#include <vector>

#include "core/profile/bench.h"

namespace quern {

// Whether `a` is faster than `b` beyond noise, by the rounds that they share: it is in so many of them that
// two equal programs would give that once in 100 times (a sign test). Needs at least kFewestRounds.
bool is_faster(const std::vector<double>& a, const std::vector<double>& b);
inline constexpr int kFewestRounds = 7;

// Removes the rounds in which the programs were slower together than their usual scatter explains. False when
// these are more than a third of all: then the rounds say nothing.
bool drop_disturbed_rounds(std::vector<Bench::Time>& times);

}  // namespace quern
