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

// A product without tensor cores: every thread has sums of some rows and columns, and takes what it
// multiplies out of shared memory in vectors. Of an operand whose vectors run along the inner dimension these
// are a group of steps.
struct FmaOperand {
  bool by_inner = false;
  int vector = 0;  // bits: elements of a vector, at most
};
// Into how many bits of rows, columns and inner dimension numbers of warps, of lanes and of a thread's
// registers are cut.
struct FmaTile {
  int m_warps = 0, n_warps = 0, k_warps = 0, m_lanes = 0, n_lanes = 0, m_registers = 0, n_registers = 0;
  int m_vector = 0, n_vector = 0;  // registers that are neighbours in shared memory
  int group = 0, groups = 0;       // of the inner dimension: steps of a group, and groups
  bool a_by_inner = false, b_by_inner = false;

  int sums() const { return 1 << (m_registers + n_registers); }
  // Of a thread and a group: loads, and registers that these fill before they are used up.
  int loads() const;
  int operand_registers() const;
};
FmaTile fma_tile(int64_t rows, int64_t columns, int64_t inner, const FmaOperand& a, const FmaOperand& b,
                 const std::array<int, 3>& warps);

// What is left to be combined when every thread has reduced its own elements of a tile.
struct ReducedParts {
  int lane_bits = 0;          // a shuffle for each
  bool across_warps = false;  // through shared memory
  double values = 1;          // of a thread
};
// Of a tile in vectors along its last dimension, then lanes, then warps, `row_warps` of which have rows of
// their own.
ReducedParts reduced_parts(const Ints& shape, const Ints& axes, int64_t element_bytes, int warps,
                           int row_warps = 1);
// Of the result of a product by tensor cores.
ReducedParts reduced_product_parts(const Ints& shape, const Ints& axes, const std::array<int, 3>& warps);

}  // namespace quern
