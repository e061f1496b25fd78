// The layouts that instructions of tensor cores prescribe for their operands and results: fragments. They
// count registers in elements, so a 32-bit register of two 16-bit elements is two values of `register` (the
// even one in the low half).
#pragma once

#include <string_view>

#include "core/schedule/layout.h"

namespace quern {

// Operands and result of mma.sync (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and
// the same for m16n8k8 with .tf32), for one warp: A[16, k], B[k, 8], C[16, 8] with k = 16 or 8. `rows` and
// `columns` name the tensor's dimensions.
enum class MmaKind { m16n8k16_16bit, m16n8k8_tf32 };
Layout mma_a(MmaKind kind, std::string_view rows, std::string_view columns);
Layout mma_b(MmaKind kind, std::string_view rows, std::string_view columns);
Layout mma_c(std::string_view rows, std::string_view columns);

// Operand A in registers and the accumulator of wgmma.mma_async (PTX ISA, "Register Fragments for
// wgmma.mma_async.m64nNk16"), for the four warps of a warpgroup: A[64, k], D[64, n], n = 8, 16, ... 256.
Layout wgmma_a(MmaKind kind, std::string_view rows, std::string_view columns);
Layout wgmma_accumulator(int n, std::string_view rows, std::string_view columns);

// `size` values of `input`, a power of two, are as many steps along `output`.
Layout steps(std::string_view input, std::string_view output, int size);
// `layout` with more warps, which go along `dim`; with 0 for no dim, which hold copies.
Layout along_warps(const Layout& layout, std::string_view dim, int warps);

}  // namespace quern
