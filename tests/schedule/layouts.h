// Layouts that tests try things on: blocked ones, what ldmatrix reads and leaves, and memory with and without
// swizzles. Sizes are powers of two.
#pragma once

#include <span>
#include <string_view>

#include "core/schedule/fragments.h"

namespace quern {

int mma_k(MmaKind kind);
// One dimension of a blocked layout: how many neighbours a thread holds, then over how many lanes and warps
// it goes on.
struct BlockedDim {
  std::string_view name;
  int per_thread = 1;
  int lanes = 1;
  int warps = 1;
};
// Dimensions are listed fastest first, which is the order of registers, lanes and warps. The product of
// `lanes` is the lanes in use (32 for a whole warp).
Layout blocked(std::span<const BlockedDim> fastest_first);

struct DimSize {
  std::string_view name;
  int size;
};
// `tile` made to cover a tensor of these sizes: repeated in further registers where it is smaller (listed
// dims first to last), wrapped around, and so holding copies, where it is larger.
Layout cover(const Layout& tile, std::span<const DimSize> sizes);
inline Layout copied_to_warps(const Layout& layout, int warps) { return along_warps(layout, {}, warps); }

// What ldmatrix leaves in the registers of a warp: `matrices` (1, 2 or 4) of 8 rows of 8 16-bit elements, as
// the dimensions `matrix`, `row`, `column`; with .trans the element [row, column] is where [column, row]
// would be.
Layout ldmatrix_fragment(int matrices, bool transposed);
// Which row's address each lane gives to ldmatrix.x4: lane -> (row, matrix). Fewer matrices look at fewer
// lanes.
Layout ldmatrix_address();

// The permutation of `dim` after which each thread's elements along it are neighbours: what the registers of
// `fragment` index comes lowest, then lanes, then warps. With a reduced dimension permuted alike in both
// operands of a product the result stays the same, and each lane can load its operand from global memory by
// 16 contiguous bytes straight into fragment order: direct = fragment.then(contiguous_permutation(fragment,
// dim)). Every input bit of `fragment` moves along one dimension only.
Layout contiguous_permutation(const Layout& fragment, std::string_view dim);

// --- Memory layouts (tensor -> offset) ---

// Dimensions fastest first, no gaps.
Layout dense_memory(std::span<const DimSize> fastest_first);
// offset -> offset: bits [base, base + bits) are XORed with the bits that stand `shift` higher.
Layout xor_swizzle(int offset_bits, int bits, int base, int shift);

// Shared memory as TMA writes it and wgmma reads it (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared
// Memory Layout"): panels of `swizzle_bytes` along the contiguous dimension, one after another, each with all
// rows; within a panel the 16-byte units of a row are XORed with bits of the row number, so that eight rows
// of a unit fill all banks. `inner` is contiguous: k for a K-major operand, m or n for an MN-major one.
Layout swizzled_panels(int element_bytes, int swizzle_bytes, const DimSize& inner, const DimSize& rows);

}  // namespace quern
