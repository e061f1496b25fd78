// The ring of staged tiles: which tile of a load lies where in a stage, and what brings it there ahead of
// time, cp.async of all threads or TMA.
#pragma once

#include <algorithm>

#include "core/codegen/block/global_memory.h"
#include "core/codegen/block/product_plans.h"
#include "core/codegen/block/shared_stores.h"
#include "core/codegen/block/shared_tiles.h"

namespace quern {

class StagedTiles : BlockPart {
 public:
  StagedTiles(const BlockFacts& facts, BlockBody& body, const ProductPlans& plans, TileBounds& bounds,
              GlobalMemory& memory, SharedTiles& shared, Values& values);

  // The tile of a staged load; the first to ask for it has it brought. Threads read it, or tensor cores
  // alone.
  const SharedTile& tile(BlockValue load);
  const SharedTile& panel(BlockValue load);
  const SharedTile* find(BlockValue load) const;
  // Into registers: as matrices where the layout is one of tensor cores, else in vectors.
  void load(BlockValue value, const RegisterLayout& layout);

  // Has a producer bring the tile, which lies in panels in memory of its own, in front of the loop, if TMA can; then it is
  // there behind a wait at arrived_once().
  bool bring_once(const SharedTile& tile);
  const Symbol& arrived_once() const { return arrived_once_; }
  bool is_brought_once(const Symbol& memory) const {
    return std::find(once_tiles_.begin(), once_tiles_.end(), memory) != once_tiles_.end();
  }

  // Of a tile in panels that warps of their own make of others of the stage: where it lies there.
  void place_transformed(SharedTile& tile, BlockValue operand, Scalar type);

  // Whether such tiles are made as asked for: there are some, in place, and warps that make them hand nothing to each other.
  Status check_transform() const;

  // From registers to the tensor, as the schedule says.
  void store(BlockValue value);

  bool has_copies() const { return !cp_async_.empty(); }
  size_t tma_tiles() const { return tma_tiles_; }
  size_t multicast_tiles() const { return multicast_; }
  // The first that threads read; -1: none.
  BlockValue read_by_threads() const { return read_by_threads_; }
  struct Map {
    TensorMap map;
    Symbol symbol;
    int32_t tensor;
  };
  const std::vector<Map>& maps() const { return maps_; }  // of loads and stores
  // What passes get; to be called last.
  ir::TileRing draft();

 private:
  Body& copies_of(const TensorPlace& place, ir::Copies& copies) const;
  std::vector<CoordBit> copy_order(const SharedTile& tile, int inner) const;
  Body copy(const SharedTile& tile);
  void copy_chunk(Builder& to, const SharedTile& tile, const TilePiece& piece, const RegisterLayout& chunks,
                  const Expr& chunk, int64_t bytes);
  void copy_from_own(Builder& to, const SharedTile& tile, const TilePiece& piece,
                     const RegisterLayout& chunks, int64_t bytes);
  bool bring_by_tma(SharedTile& tile);
  // Whether a tile that is made of one of the stage can take its place: each warp writes where it has read, and nobody else does.
  bool is_made_in_place(BlockValue operand, const SharedTile& made) const;
  class Tma;  // tma.cc

  const ProductPlans& plans_;
  TileBounds& bounds_;
  GlobalMemory& memory_;
  SharedTiles& shared_;
  Values& values_;
  SharedStores stores_;
  std::map<BlockValue, SharedTile> tiles_;
  // Where an arriving tile is heard of: with `overlap`, whose first and last products read others, at an mbarrier of its own.
  ir::Arrival& arrival_of(const SharedTile& tile);

  ir::Copies cp_async_;
  std::vector<ir::Arrival> arrivals_;
  std::map<BlockValue, SharedTile> transformed_;  // by the operand
  bool copies_panels_ = false;  // for wgmma, by cp.async
  std::vector<Map> maps_;
  size_t tma_tiles_ = 0, multicast_ = 0;  // that TMA brings, and those of them that blocks share
  BlockValue read_by_threads_ = -1;
  ir::Copies once_;
  int64_t once_bytes_ = 0;
  std::vector<Symbol> once_tiles_;
  Symbol ring_, full_, empty_, arrived_once_, once_read_;
};

}  // namespace quern
