// The numerics policy: what a caller allows beyond arithmetic in the dtypes that its graph names. A set of
// bits, part of the key of a plan and of messages: never change a value.
#pragma once

#include <cstdint>

namespace quern {

// Products of f32 may be computed from operands that are rounded to tf32, 10 bits of mantissa.
inline constexpr uint32_t kAllowTf32 = 1;

}  // namespace quern
