#include "tests/schedule/layouts.h"

#include <bit>

#include "core/base/status.h"

namespace quern {

namespace {

int log2_of(int size) {
  check(size > 0 && std::has_single_bit(static_cast<unsigned>(size)), "a layout's size is a power of two");
  return std::countr_zero(static_cast<unsigned>(size));
}

}  // namespace

int mma_k(MmaKind kind) { return kind == MmaKind::m16n8k16_16bit ? 16 : 8; }

Layout blocked(std::span<const BlockedDim> fastest_first) {
  Layout result;
  for (std::string_view name : {kRegister, kLane, kWarp})
    for (const BlockedDim& dim : fastest_first)
      result = result * steps(name, dim.name,
                              name == kRegister ? dim.per_thread
                              : name == kLane   ? dim.lanes
                                                : dim.warps);
  return result;
}

Layout cover(const Layout& tile, std::span<const DimSize> sizes) {
  Layout result = tile;
  for (const DimSize& dim : sizes) {
    const int bits = log2_of(dim.size), have = result.output_bits(dim.name);
    if (have > bits)
      result = result.wrapped(dim.name, bits);
    else
      result = result * Layout::identity(kRegister, dim.name, bits - have);
  }
  return result;
}

Layout ldmatrix_fragment(int matrices, bool transposed) {
  const std::string_view across = transposed ? "row" : "column", along = transposed ? "column" : "row";
  return steps(kRegister, across, 2) * steps(kLane, across, 4) * steps(kLane, along, 8) *
         steps(kRegister, "matrix", matrices);
}

Layout ldmatrix_address() { return steps(kLane, "row", 8) * steps(kLane, "matrix", 4); }

Layout contiguous_permutation(const Layout& fragment, std::string_view dim) {
  const int bits = fragment.output_bits(dim);
  F2Matrix matrix{bits, std::vector<uint64_t>(bits)};
  uint64_t next = 1;
  auto place = [&](std::string_view input) {
    for (int bit = 0; bit < fragment.input_bits(input); ++bit) {
      const uint64_t moved = fragment.basis(input, bit, dim);
      if (moved == 0) continue;
      check(std::has_single_bit(moved), "a fragment's bit moves by a power of two");
      uint64_t& column = matrix.columns[std::countr_zero(moved)];
      if (column != 0) continue;  // a copy of an earlier bit
      column = next;
      next <<= 1;
    }
  };
  for (std::string_view input : {kRegister, kLane, kWarp}) place(input);
  // What no input reaches keeps its order above the rest.
  for (uint64_t& column : matrix.columns)
    if (column == 0) {
      column = next;
      next <<= 1;
    }
  Layout result({{std::string(dim), bits}}, {{std::string(dim), bits}}, std::move(matrix));
  for (const LayoutDim& other : fragment.outputs())
    if (other.name != dim) result = result * Layout::identity(other.name, other.name, other.bits);
  std::vector<std::string_view> names;
  for (const LayoutDim& output : fragment.outputs()) names.push_back(output.name);
  return result.reordered(names, names);
}

Layout dense_memory(std::span<const DimSize> fastest_first) {
  Layout result;
  for (const DimSize& dim : fastest_first) result = result * steps(dim.name, kOffset, dim.size);
  return result;
}

Layout xor_swizzle(int offset_bits, int bits, int base, int shift) {
  check(bits >= 0 && base >= 0 && shift >= bits, "a swizzle XORs bits with others above them");
  F2Matrix matrix = f2_identity(offset_bits);
  for (int bit = base; bit < base + bits && bit + shift < offset_bits; ++bit)
    matrix.columns[bit + shift] ^= uint64_t{1} << bit;
  return Layout({{std::string(kOffset), offset_bits}}, {{std::string(kOffset), offset_bits}},
                std::move(matrix));
}

Layout swizzled_panels(int element_bytes, int swizzle_bytes, const DimSize& inner, const DimSize& rows) {
  check(swizzle_bytes >= 16 && swizzle_bytes <= 128, "wgmma and TMA swizzle 16 (none), 32, 64 or 128 bytes");
  const int panel = swizzle_bytes / element_bytes;
  check(inner.size >= panel, "a swizzled panel is not wider than the tile");
  Layout dense = steps(inner.name, kOffset, panel) * steps(rows.name, kOffset, rows.size) *
                 steps(inner.name, kOffset, inner.size / panel);
  // In bytes: as many bits from bit 4 on as the panel has 16-byte units, with those from bit 7 on.
  const int element_bits = log2_of(element_bytes), unit_bits = log2_of(swizzle_bytes) - 4;
  return dense.then(xor_swizzle(dense.output_bits(), unit_bits, 4 - element_bits, 3));
}

}  // namespace quern
