// Register layouts to try things on: those of the constructors, and random ones.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "core/schedule/layout.h"

namespace quern {

struct LayoutSample {
  std::string name;
  Layout layout;
};

// Layouts over m[rows], n[columns] with inputs register, lane[32], warp[warps]: blocked in several orders,
// all mma fragments in both orientations, slices with copies, wgmma fragments if there are four warps. rows
// and columns are at least 16; warps is 1, 2 or 4.
std::vector<LayoutSample> register_samples(int rows, int columns, int warps);

// Any matrix of these sizes, over inputs register, lane, warp and outputs m, n.
Layout random_layout(std::mt19937_64& random, int register_bits, int lane_bits, int warp_bits, int m_bits,
                     int n_bits);
// The same, a bijection; it has as many bits on each side.
Layout random_bijection(std::mt19937_64& random, int register_bits, int lane_bits, int warp_bits, int m_bits,
                        int n_bits);

}  // namespace quern
