// How many blocks a launch has at most (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability").
#pragma once

#include <cstdint>

namespace quern {

inline constexpr int64_t kMostBlocksX = 0x7fffffff, kMostBlocksAcross = 65535;  // along y and z

constexpr bool fits_launch(int64_t x, int64_t y, int64_t z) {
  return x <= kMostBlocksX && y <= kMostBlocksAcross && z <= kMostBlocksAcross;
}

}  // namespace quern
