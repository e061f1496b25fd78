// Whole tiles in shared memory, element by element: what moves elements to other places of a tile, or lays
// the tiles of several iterations one after the other.
#pragma once

#include "core/codegen/block/values.h"

namespace quern {

class Moves : BlockPart {
 public:
  Moves(const BlockFacts& facts, BlockBody& body, TileBounds& bounds, Values& values)
      : BlockPart(facts, body), bounds_(bounds), values_(values) {}

  // A reshape, slice or concat that is no view.
  void move(BlockValue value);
  // The iterations' tiles lie one after the other in shared memory, which nobody else has until the end.
  void concatenate_iterations(BlockValue value);

 private:
  void concatenate(BlockValue value);
  // Writes a tile, in registers' precision, with these strides from element `start` of `to` on; zeros beyond
  // ragged edges.
  Body write_elements(BlockValue value, const Symbol& to, const Expr& start, const Ints& strides);
  // The tile of `value` out of shared memory, from element `start` on.
  void read_elements(BlockValue value, const Symbol& from, const Expr& start, const Ints& strides,
                     Stage place);
  Symbol buffer_for(BlockValue value, SharedBuffer::Use use = SharedBuffer::Use::exchange);

  TileBounds& bounds_;
  Values& values_;
};

}  // namespace quern
