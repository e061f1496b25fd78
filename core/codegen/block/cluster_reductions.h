// Reductions over the blocks of a cluster. Every block leaves what it has in its shared memory; behind one
// barrier of the cluster whoever needs the result reads all of them, and where it goes to a store, every
// block reads and stores its part.
#pragma once

#include "core/codegen/block/values.h"

namespace quern {

class ClusterReductions : BlockPart {
 public:
  ClusterReductions(const BlockFacts& facts, BlockBody& body, TileBounds& bounds, Values& values)
      : BlockPart(facts, body), bounds_(bounds), values_(values) {}

  // Leaves the operands of this and of all later reductions that can be left already.
  void publish(BlockValue reduction);
  // Reads what all blocks have and puts it together.
  void gather(BlockValue reduction, const RegisterLayout& want);
  // Number of steps after the loop behind which nothing is read from other blocks any more.
  size_t last_gather() const { return last_gather_; }

 private:
  // A tile in shared memory that other blocks read. `pitch`: elements from one coordinate to the next.
  struct PublishedTile {
    Symbol memory;
    DType dtype = DType::f32;
    Ints pitch;
    int64_t size = 1;
  };
  PublishedTile place_tile(BlockValue value, DType dtype);
  int vector_bits(BlockValue value, const PublishedTile& tile, RegisterLayout& layout) const;
  // Writes a tile to where other blocks will read it.
  Body put(BlockValue value, const RegisterTile& have, const PublishedTile& tile);
  Symbol factors(BlockValue shift, const RegisterLayout& layout);

  TileBounds& bounds_;
  Values& values_;
  std::map<BlockValue, PublishedTile> published_;
  std::map<std::string, Symbol> factors_;
  size_t last_gather_ = 0;
};

}  // namespace quern
