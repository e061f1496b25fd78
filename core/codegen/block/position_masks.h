// Masks that positions decide (core/mugraph/tile_masks.h). An iteration that is masked wholly is passed over
// where it changes nothing (core/mugraph/masked_work.h): what that demands of maxima, factors and the tiles
// of its products is looked at first.
#pragma once

#include "core/codegen/block/staged_tiles.h"
#include "core/codegen/block/values.h"
#include "core/mugraph/masked_work.h"
#include "core/mugraph/tile_masks.h"

namespace quern {

// Whether `count` words of f32 behind `first` are 0: each of so many threads reads some of them by `load`, and knows of these.
Expr words_are_zero(Builder& to, const std::string& name, ir::Instr load, const Symbol& memory,
                    const Expr& first, int64_t count, int64_t threads);

class PositionMasks : BlockPart {
 public:
  PositionMasks(const BlockFacts& facts, BlockBody& body, TileBounds& bounds, GlobalMemory& memory,
                StagedTiles& staged, Values& values)
      : BlockPart(facts, body), bounds_(bounds), memory_(memory), staged_(staged), values_(values) {}

  // With intervals: tells whoever computes what is masked (BlockBody::unmasked). Before anything is written.
  void find();
  // What the passes skip_masked_tiles and mask_intervals need to know.
  std::optional<ir::MaskedIterations> draft();
  // By tensor: where a kernel in front says which parts of it are finite.
  const std::map<int32_t, TensorPlace>& watched() const { return watched_; }

 private:
  struct PassedOver {
    MaskedWork work;
    std::set<BlockValue> selects = {};
    // Whether these mask nothing of the tile; whether something of it is not masked.
    TileTruth<Expr> tile = {ir::truth(true), ir::truth(false)};
  };
  // Of a condition over positions; nothing if that is not known.
  Expr integer(BlockValue load);
  std::optional<TileTruth<Expr>> tile_truth(BlockValue condition);
  const std::optional<TileTruth<Expr>>& known_truth(BlockValue condition);
  std::optional<PassedOver> passed_over();
  const RegisterTile* held(BlockValue value) const;
  Expr finite_part(Builder& to, BlockValue value) const;
  struct Parts {
    Expr first;
    int64_t count;
  };
  Parts parts_read(int32_t tensor, const std::vector<BlockValue>& tiles) const;
  Expr known_finite(Builder& to, int32_t tensor, const Parts& parts);
  Expr all_finite(Builder& to, const std::set<BlockValue>& tiles);

  TileBounds& bounds_;
  GlobalMemory& memory_;
  StagedTiles& staged_;
  Values& values_;
  std::optional<PassedOver> masks_;
  std::map<BlockValue, Symbol> integers_;  // that were read, by their loads
  std::map<BlockValue, std::optional<TileTruth<Expr>>> truths_;
  std::map<int32_t, TensorPlace> watched_;
};

}  // namespace quern
