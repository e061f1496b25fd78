// Sizes that kernels are built with, and when work is split to fill a GPU. Rules of thumb: the search knows
// better.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/base/dtype_info.h"
#include "core/base/target.h"
#include "core/lang/type.h"

namespace quern {

// A block of a matmul kernel computes rows x columns of the product, `depth` of k at a time, with warps in a
// grid of warp_rows x warp_columns.
struct Tile {
  int rows, columns, depth;
  int warp_rows, warp_columns;
  int stages;                // tiles of operands in shared memory at a time
  int down = 0, across = 0;  // sums of a thread, for FMAs
  int threads() const { return 32 * warp_rows * warp_columns; }
};

// The units that multiply two operands: mma.sync those of the same narrow type that they take, the FMA pipe
// two of f32 in tiles of registers; everything else is converted to f32 or i32 first.
enum class ProductUnit : uint8_t { mma, fma, simt };
inline ProductUnit product_unit(DType a, DType b) {
  if (a != b) return ProductUnit::simt;
  return a == DType::f32              ? ProductUnit::fma
         : dtype_info(a).tensor_cores ? ProductUnit::mma
                                      : ProductUnit::simt;
}
inline bool uses_tensor_cores(DType a, DType b) { return product_unit(a, b) == ProductUnit::mma; }

Tile choose_tile(int64_t m, int64_t n, ProductUnit unit);

// Into how many equal parts to split k, or the rows of a reduction (whose elements are neighbours, or else
// whose rows are); 1: not at all.
int64_t matmul_parts(const Tile& tile, ProductUnit unit, int64_t batch, int64_t m, int64_t n, int64_t k);
int64_t reduction_parts(int64_t rows, int64_t length, bool neighbours);

// Blocks of a cluster that may share a row.
int most_row_blocks(const Target& target);
// Blocks whose shared memory holds so many bytes of a row together; 0: it is too long for that.
int row_cluster(const Target& target, int64_t bytes);
// Whether the elements of a reduction over `axes` (ascending) are neighbours in row-major order.
bool reduces_neighbours(const Ints& shape, const Ints& axes);
// Whether a kernel that reads the rows of such a reduction several times keeps them there.
bool keeps_row(const Target& target, const Ints& shape, const Ints& axes);

}  // namespace quern
