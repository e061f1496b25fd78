// Arithmetic on extents.
#pragma once

#include <bit>
#include <cstdint>

namespace quern {

// How many parts of `b` cover `a`; a >= 0, b > 0.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
// The least multiple of `b` that is not below `a`.
constexpr int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// A tile that cuts an extent into so many parts: of whole powers of two as large as they can be, which copies
// and tensor cores take as they are, and the last part shorter for it. Small tiles are padded to one anyway;
// large ones stay about as even as they can be.
inline int64_t round_tile(int64_t extent, int64_t parts) {
  constexpr int64_t kPadded = 128, kShare = 16, kUnit = 16;
  const int64_t even = divide_up(extent, parts);
  if (parts == 1 || (even * parts == extent && even % kUnit == 0)) return even;
  for (int64_t unit = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(even))); unit > 1; unit /= 2) {
    const int64_t tile = round_up(even, unit);
    if (divide_up(extent, tile) == parts && (tile <= kPadded || tile <= even + even / kShare)) return tile;
  }
  return even;
}

}  // namespace quern
