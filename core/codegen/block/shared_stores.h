// Tiles that are stored through shared memory, where registers fill them in vectors or by stmatrix; TMA or threads take them on.
#pragma once

#include "core/codegen/block/global_memory.h"
#include "core/codegen/block/shared_tiles.h"

namespace quern {

class SharedStores : BlockPart {
 public:
  SharedStores(const BlockFacts& facts, BlockBody& body, TileBounds& bounds, GlobalMemory& memory,
               SharedTiles& shared, Values& values)
      : BlockPart(facts, body), bounds_(bounds), memory_(memory), shared_(shared), values_(values) {}

  // Threads store rows of it (is_stored_by_stmatrix).
  void store(BlockValue store);

  // Of a tile that registers hold so: its extents; and its place in shared memory.
  SharedTile room_for(BlockValue store, const RegisterLayout& layout) const;
  void place(SharedTile& tile);
  // What a thread has of a tile, as it is stored, in vectors as they lie in registers; for TMA behind a fence.
  void fill(const SharedTile& tile, BlockValue store, const RegisterLayout& natural, bool by_tma);
  // Threads store the tile from there, without what other blocks store.
  void store_rows(const SharedTile& tile, BlockValue store);

 private:
  TileBounds& bounds_;
  GlobalMemory& memory_;
  SharedTiles& shared_;
  Values& values_;
};

}  // namespace quern
