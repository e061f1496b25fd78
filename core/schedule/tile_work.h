// How the warps of a block share the work on one tile, as the emitters of blocks do it.
#pragma once

#include <array>

#include "core/lang/attrs.h"

namespace quern {

// The next power of two: what a tile's extent takes in layouts.
int64_t padded(int64_t extent);

// Into how many parts warps cut a product of tensor cores along rows, columns and the inner dimension. A
// direction that has no more tiles to give leaves its warps to the columns.
struct ProductParts {
  int64_t m = 1, n = 1, k = 1;
};
ProductParts product_parts(int64_t rows, int64_t inner, int64_t inner_least, const std::array<int, 3>& warps);

// The same of a product by wgmma, of warpgroups: `m` rows of the M operand, `n` of the N operand, of which
// a warpgroup takes at least `least_n`. What finds no part repeats another one's.
struct WarpgroupTile {
  int64_t m = 64, n = 8, k = 16, least_n = 8;
};
ProductParts warpgroup_parts(const WarpgroupTile& tile, int m_warps, int n_warps, int all_warps);

// A product without tensor cores, step by step along the inner dimension: of a warp and a step.
struct StepWork {
  double slots = 0, wavefronts = 0;  // instructions; accesses of 128 bytes to shared memory
};
StepWork step_work(int64_t rows, int64_t columns, int64_t inner, double elements, int threads);

// What is left to be combined when every thread has reduced its own elements of a tile.
struct ReducedParts {
  int lane_bits = 0;          // a shuffle for each
  bool across_warps = false;  // through shared memory
  double values = 1;          // of a thread
};
// Of a tile in vectors along its last dimension, then lanes, then warps.
ReducedParts reduced_parts(const Ints& shape, const Ints& axes, int64_t element_bytes, int warps);
// Of the result of a product by tensor cores.
ReducedParts reduced_product_parts(const Ints& shape, const Ints& axes, const std::array<int, 3>& warps);

}  // namespace quern
