// How the elements of a tile are spread over the threads of a block: every bit of a thread's warp number, of
// its lane number and of the number of a register names one bit of one coordinate. Where the blocks of a
// cluster have a part of a tile each, so do the bits of the block's number in the cluster. Fragments of
// tensor cores, vectors and rows are all of this kind: linear layouts (arXiv 2505.23819) whose matrix is a
// permutation, so that an index in one is an index in another with its bits moved.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/kernel/expr.h"
#include "core/lang/type.h"
#include "core/schedule/layout.h"

namespace quern {

struct CoordBit {
  int dim = -1;  // -1: none, the tile is repeated
  int bit = 0;
  bool operator==(const CoordBit&) const = default;
};

inline constexpr int kLaneBits = 5;

// Every bit that a coordinate within the tile has is somewhere; bits beyond may be, and name nothing.
struct Spread {
  std::vector<CoordBit> registers;        // lowest first
  std::array<CoordBit, kLaneBits> lanes;  // likewise
  std::vector<CoordBit> warps;
  std::vector<CoordBit> ranks;  // none: every block of a cluster has all
  bool operator==(const Spread&) const = default;

  int count() const { return 1 << registers.size(); }  // of registers
  bool is_shared_out() const {                         // every block of a cluster has a part
    return std::any_of(ranks.begin(), ranks.end(), [](const CoordBit& bit) { return bit.dim >= 0; });
  }
  // Bits of `dim` that are named: coordinates are below 2 to this power.
  int bits(int dim) const;
};

// Bits needed to count to `extent`.
int bits_for(int64_t extent);
bool is_beyond(const CoordBit& bit, const Ints& shape);

// The same as a linear layout over dimensions "0", "1", ... of these extents, rounded up to powers of two.
// Bits that name nothing of it count as copies. Blocks of a cluster are further warps: 2^rank_bits times as
// many.
Layout to_layout(const Spread& spread, const Ints& shape, size_t rank_bits);

// The first `vector` bits in registers, the next in lanes and warps, what is left in registers again.
Spread spread_in_order(const std::vector<CoordBit>& bits, int vector, int warp_bits, int rank_bits = 0);

// `vector` low bits of dimension `inner` in registers, then lanes and warps filled from the last dimension
// backwards (`inner` first), what is left in registers. Blocks of a cluster come between lanes and warps. The last `row_bits`
// of the warps have rows of their own, if there are any, whatever the inner dimension has left.
Spread blocked_spread(const Ints& shape, int inner, int vector, int warp_bits, int rank_bits = 0,
                      int row_bits = 0);

// A spread without its first `vector` registers: those of one access.
Spread chunks_of(Spread spread, int vector);

// For each dimension of a result its number in an operand that is broadcast to it, or -1.
std::vector<int> operand_dims(const Ints& result, const Ints& operand);
// What is left of a spread when its dimensions get other numbers, or none (-1); and where in it the register
// with number `variable` of the whole one lies.
Spread renumbered(const Spread& spread, const std::vector<int>& dims);
ir::Expr renumbered_index(const ir::Expr& variable, const Spread& spread, const std::vector<int>& dims);

// Whether a thread that has a tile of this shape in `have` finds all that it wants in `want` in registers of
// its own.
bool serves(const Spread& have, const Spread& want, const Ints& shape);

// An expression that moves bits: bit from of `variable` becomes bit to.
struct BitMove {
  int from, to;
};
ir::Expr move_bits(const ir::Expr& variable, std::vector<BitMove> moves);
// Where in `have` the register with number `variable` of `want` lies.
ir::Expr register_index(const ir::Expr& variable, const Spread& have, const Spread& want);
// The number of the thread in its warp, of the warp, and of the block in its cluster.
const ir::Symbol& lane();
const ir::Symbol& warp();
const ir::Symbol& rank();
// The part of coordinate `dim` that the thread decides (over `lane`, `warp` and `rank`), and that register
// `variable` does.
ir::Expr thread_part(const Spread& spread, int dim);
ir::Expr register_part(const ir::Expr& variable, const Spread& spread, int dim);
// Of threads that hold the same tile, whether this is the first.
ir::Expr leaders(const Spread& spread);
std::string add_text(const std::string& a, const std::string& b);  // "0" disappears

}  // namespace quern
