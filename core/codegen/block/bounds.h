// Where tiles begin and end: coordinates of what registers hold, offsets in memory, and ragged edges.
#pragma once

#include "core/codegen/block/body.h"

namespace quern {

// One dimension of a tile: `tile` away from ragged edges; `left` is what there is of it in this block (and
// iteration), null if that is always all. Of a store, `own` is where begins what no block in front stores, null: the tile.
struct TileDim {
  int64_t tile = 1;
  Symbol left = nullptr, own = nullptr;
};

class TileBounds : BlockPart {
 public:
  // Names where the tiles of all loads and stores begin.
  TileBounds(const BlockFacts& facts, BlockBody& body);

  const std::vector<TileDim>& dims(BlockValue value) const { return dims_[static_cast<size_t>(value)]; }
  // Of a load or store: where the tile begins in its tensor.
  const std::vector<Expr>& firsts(BlockValue access) const { return firsts_[static_cast<size_t>(access)]; }
  // Where an iteration's tiles are all there.
  const Expr& whole_iterations() const { return whole_iterations_; }
  // The block's place along x, beside those of its cluster, and that of the tile where blocks stay.
  const Symbol& block_x() const { return block_x_; }
  const Symbol& tile_axis(int axis) const { return tile_axes_[static_cast<size_t>(axis)]; }

  // A variable with the value of an expression that is the same all through the kernel.
  Expr define(const std::string& prefix, const Expr& expression);
  // Of what register `index` holds: its coordinate along `dim`, its place in memory of these strides, and
  // that from the thread's register 0 on.
  Expr coordinate(const RegisterLayout& layout, int dim, const Expr& index);
  Expr offset(const RegisterLayout& layout, const Ints& strides, const Expr& index);
  static Expr register_offset(const RegisterLayout& layout, const Ints& strides, const Expr& index);
  // Whether register `index` is inside the tile; known to be true if every register is. Only dimensions in
  // `dims` (all if empty) are looked at, and edges of the block only if `edges`.
  Expr inside(BlockValue value, const RegisterLayout& layout, const Expr& index, bool edges = true,
              const std::vector<int>& dims = {});

 private:
  struct Interval {
    Expr first;
    Symbol left = nullptr;  // null: the tile never reaches beyond the tensor
    Symbol own = nullptr;   // null: no other block has parts of the tile
  };
  Expr block_coordinate(int axis) const;
  Interval interval(const BlockOp& op, int dim);
  void find_extents(BlockValue value);

  Symbol block_x_;
  std::vector<Symbol> tile_axes_;
  std::vector<bool> whole_;                // of these axes: takes_whole_tiles()
  std::map<std::string, Symbol> defined_;  // by the text of the expression
  std::map<std::string, Interval> intervals_;
  std::vector<std::vector<TileDim>> dims_;
  std::vector<std::vector<Expr>> firsts_;
  std::set<Symbol> loop_lefts_;  // what is left of dimensions that the loop cuts
  Expr whole_iterations_ = ir::truth(true);
};

}  // namespace quern
