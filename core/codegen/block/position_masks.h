// Masks that positions decide (core/mugraph/tile_masks.h). An iteration of online softmax all of whose scores
// are masked is passed over: its scores are one number, and where that lies so far below the maximum of every
// row that its exponentials are 0, it changes nothing but what 0 times an infinity or NaN makes NaN; so the
// other operands of its products are looked at first.
#pragma once

#include "core/codegen/block/staged_tiles.h"
#include "core/mugraph/tile_masks.h"

namespace quern {

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
  struct MaskedScores {
    BlockValue value = -1;
    double masked = 0;              // the number in place of a score
    TileTruth<Expr> tile = {0, 0};  // whether scores of the tile are none that are masked
    std::set<BlockValue> selects = {};
  };
  struct PassedOver {
    MaskedScores scores;
    BlockValue maximum = -1;
    std::set<BlockValue> tiles;  // whose numbers must be finite
  };
  // Of a condition over positions; nothing if that is not known.
  Expr integer(BlockValue load);
  std::optional<TileTruth<Expr>> tile_truth(BlockValue condition);
  std::optional<MaskedScores> masked_scores(BlockValue value);
  BlockValue unscaled(BlockValue value) const;  // itself, if nothing scales it
  bool vanishes(BlockValue value, BlockValue scores, BlockValue maximum, std::set<BlockValue>& tiles) const;
  std::optional<PassedOver> passed_over();
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
  std::map<int32_t, TensorPlace> watched_;
};

}  // namespace quern
