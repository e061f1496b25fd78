// The layouts that hardware and memory prescribe. Sizes are powers of two; the fragments count registers in
// elements, so a 32-bit register of two 16-bit elements is two values of `register` (the even one in the low
// half).
#pragma once

#include <span>
#include <string_view>

#include "core/schedule/layout.h"

namespace quern {

// --- Register layouts ---

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
// `layout` with more warps, which go along `dim`; with 0 for no dim, which hold copies.
Layout along_warps(const Layout& layout, std::string_view dim, int warps);
inline Layout copied_to_warps(const Layout& layout, int warps) { return along_warps(layout, {}, warps); }

// Operands and result of mma.sync (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and
// the same for m16n8k8 with .tf32), for one warp: A[16, k], B[k, 8], C[16, 8] with k = 16 or 8. `rows` and
// `columns` name the tensor's dimensions.
enum class MmaKind { m16n8k16_16bit, m16n8k8_tf32 };
int mma_k(MmaKind kind);
Layout mma_a(MmaKind kind, std::string_view rows, std::string_view columns);
Layout mma_b(MmaKind kind, std::string_view rows, std::string_view columns);
Layout mma_c(std::string_view rows, std::string_view columns);

// Operand A in registers and the accumulator of wgmma.mma_async (PTX ISA, "Register Fragments for
// wgmma.mma_async.m64nNk16"), for the four warps of a warpgroup: A[64, k], D[64, n], n = 8, 16, ... 256.
Layout wgmma_a(MmaKind kind, std::string_view rows, std::string_view columns);
Layout wgmma_accumulator(int n, std::string_view rows, std::string_view columns);

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
