// Register layouts: where the elements of a tile live in the registers of a block's threads, or, where the
// blocks of a cluster have a part of it each, of theirs. A linear layout (core/schedule/layout.h, arXiv
// 2505.23819) each of whose columns, the bits of register, lane, warp and block, names one bit of one
// coordinate or none: fragments of tensor cores, vectors and rows are all of this kind. Code is made of the
// columns (layout_expr.h), since an index in one such layout is an index in another with its bits moved;
// conversions are planned for the map (linear()).
//
// Of a tile whose extent is no power of two, as 192, bits count to the next one; it ends before. As many
// registers and warps as the end leaves are there: they are the first ones of those that bits count.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "core/lang/type.h"
#include "core/schedule/layout.h"

namespace quern {

struct CoordBit {
  int dim = -1;  // -1: none, the tile is repeated
  int bit = 0;
  bool operator==(const CoordBit&) const = default;
};

inline constexpr int kLaneBits = 5;

// Coordinates along `dim` are below `extent`, which is no power of two: an odd number of parts. The bits that
// count these are the last ones of the registers, or bits of warps.
struct CoordEnd {
  int dim = 0;
  int64_t extent = 0;
  int first_bit() const { return std::countr_zero(static_cast<uint64_t>(extent)); }
  int64_t parts() const { return extent >> first_bit(); }
  bool operator==(const CoordEnd&) const = default;
};

// Every bit that a coordinate within the tile has is somewhere; bits beyond may be, and name nothing.
struct RegisterLayout {
  std::vector<CoordBit> registers;        // lowest first
  std::array<CoordBit, kLaneBits> lanes;  // likewise
  std::vector<CoordBit> warps;
  std::vector<CoordBit> ranks;  // none: every block of a cluster has all
  std::vector<CoordEnd> ends;   // of dimensions that end before the power of two of their bits
  bool operator==(const RegisterLayout&) const = default;

  int count() const;            // of registers
  bool is_shared_out() const {  // every block of a cluster has a part
    return std::any_of(ranks.begin(), ranks.end(), [](const CoordBit& bit) { return bit.dim >= 0; });
  }
  // Whether the bits that count the parts of a dimension that ends are the last ones of the registers.
  bool ends_in_registers(const CoordEnd& end) const;
  // Bits of `dim` that are named: coordinates are below 2 to this power, and below the extent.
  int bits(int dim) const;
  int64_t extent(int dim) const;
};

// Bits needed to count to `extent`.
int bits_for(int64_t extent);
bool is_beyond(const CoordBit& bit, const Ints& shape);
// Bits first .. last - 1 of coordinates along `dim`.
void append_bits(std::vector<CoordBit>& to, int dim, int first, int last);
std::vector<CoordBit> coord_bits(int dim, int count);
// Those that count the parts of a dimension that ends.
std::vector<CoordBit> part_bits(const CoordEnd& end);

// The map to dimensions "0", "1", ... of these extents, rounded up to powers of two.
// Bits that name nothing of it count as copies. Blocks of a cluster are further warps: 2^rank_bits times as
// many.
Layout linear(const RegisterLayout& layout, const Ints& shape, size_t rank_bits);

// The fragment of an instruction (core/schedule/fragments.h) for a tile: for each dimension of the fragment
// the bits of coordinates that its own bits are, lowest first.
struct FragmentDim {
  std::string_view name;
  std::vector<CoordBit> bits;
};
RegisterLayout fragment_layout(const Layout& fragment, const std::vector<FragmentDim>& dims);

// The first `vector` bits in registers, the next in lanes and warps, what is left in registers again.
RegisterLayout layout_in_order(const std::vector<CoordBit>& bits, int vector, int warp_bits,
                               int rank_bits = 0);

// `vector` low bits of dimension `inner` in registers, then lanes and warps filled from the last dimension
// backwards (`inner` first), what is left in registers. Blocks of a cluster come between lanes and warps. The
// last `row_bits` of the warps have rows of their own, if there are any, whatever the inner dimension has
// left.
RegisterLayout blocked_layout(const Ints& shape, int inner, int vector, int warp_bits, int rank_bits = 0,
                              int row_bits = 0);

// Has registers that are bits first .. last - 1 of `dim`, as far as there are such, in front, the lowest
// first.
void put_first(RegisterLayout& layout, int dim, int first, int last);
// Has the register of this bit in front; false if there is none.
bool put_first(RegisterLayout& layout, const CoordBit& bit);
// How many registers in front are bits 0, 1, ... of `dim`; at most `most`.
int leading_bits(const RegisterLayout& layout, int dim, int most);
// A layout without its first `vector` registers: those of one access.
RegisterLayout chunks_of(RegisterLayout layout, int vector);

// For each dimension of a result its number in an operand that is broadcast to it, or -1.
std::vector<int> operand_dims(const Ints& result, const Ints& operand);
// What is left of a layout when its dimensions get other numbers, or none (-1).
RegisterLayout renumbered(const RegisterLayout& layout, const std::vector<int>& dims);

// Whether a thread that has a tile of this shape in `have` finds all that it wants in `want` in registers of
// its own.
bool serves(const RegisterLayout& have, const RegisterLayout& want, const Ints& shape);

}  // namespace quern
