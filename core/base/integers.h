// Arithmetic on extents.
#pragma once

#include <cstdint>

namespace quern {

// How many parts of `b` cover `a`; a >= 0, b > 0.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
// The least multiple of `b` that is not below `a`.
constexpr int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

}  // namespace quern
