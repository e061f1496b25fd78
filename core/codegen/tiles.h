// Sizes that kernels are built with, and when work is split to fill a GPU. Rules of thumb: the search knows
// better.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace quern {

// A block of a matmul kernel computes rows x columns of the product, `depth` of k at a time, with warps in a
// grid of warp_rows x warp_columns.
struct Tile {
  int rows, columns, depth;
  int warp_rows, warp_columns;
  int stages;  // tiles of operands in shared memory at a time
  int threads() const { return 32 * warp_rows * warp_columns; }
};

// mma.sync multiplies two operands of the same 16-bit type; everything else is done in f32 or i32.
inline bool uses_tensor_cores(DType a, DType b) { return a == b && dtype_size(a) == 2; }

Tile choose_tile(int64_t m, int64_t n, bool tensor_cores);

// Into how many equal parts to split k, or the rows of a reduction; 1: not at all.
int64_t matmul_parts(const Tile& tile, int64_t batch, int64_t m, int64_t n, int64_t k);
int64_t reduction_parts(int64_t rows, int64_t length);

}  // namespace quern
