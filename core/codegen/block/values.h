// Values of a block graph where they are asked for: out of registers that hold them, or computed element by
// element from what does.
#pragma once

#include "core/codegen/arithmetic.h"
#include "core/codegen/block/bounds.h"
#include "core/kernel/value.h"

namespace quern {

using ir::Value;

class ClusterReductions;
class Conversions;
class GlobalMemory;
class StagedTiles;

// A tile in registers: element i of them, or half of element i / 2 if two 16-bit elements share a word.
// Partial: the tile is what `reduction` makes of what these bits of lane and warp numbers tell apart.
struct RegisterTile {
  Symbol registers;
  RegisterLayout layout;
  DType dtype = DType::f32;
  bool words = false;
  Stage scope = Stage::before;  // where it is defined
  unsigned partial_lanes = 0, partial_warps = 0;
  OpCode reduction = OpCode::reduce_sum;
  bool whole() const { return partial_lanes == 0 && partial_warps == 0; }
};

// Layouts in which operators ask for all of a value, and what they cost.
struct ChosenLayouts {
  std::map<BlockValue, RegisterLayout> layouts;
  std::set<BlockValue> in_parts;  // some of the tiles that these are made of, element by element
  // Estimated issue cycles of a warp, over all iterations: of all that layouts decide, and of the conversions
  // among it.
  int64_t cycles = 0, conversion_cycles = 0;
};

class Values : BlockPart {
 public:
  Values(const BlockFacts& facts, BlockBody& body, TileBounds& bounds, GlobalMemory& memory,
         StagedTiles& staged, Conversions& conversions, ClusterReductions& cluster)
      : BlockPart(facts, body),
        bounds_(bounds),
        memory_(memory),
        staged_(staged),
        conversions_(conversions),
        cluster_(cluster),
        tiles_(facts.program.ops.size()) {}

  // Before the first value is asked for.
  void choose(ChosenLayouts layouts) { chosen_ = std::move(layouts); }
  const RegisterLayout& natural(BlockValue value) const { return chosen_.layouts.at(value); }
  bool is_in_parts(BlockValue value) const { return chosen_.in_parts.contains(value); }

  // What registers hold of a value.
  const std::vector<RegisterTile>& tiles(BlockValue value) const {
    return tiles_[static_cast<size_t>(value)];
  }
  void hold(BlockValue value, RegisterTile tile) {
    tiles_[static_cast<size_t>(value)].push_back(std::move(tile));
  }
  // A tile that is whole, defined where statements stand now, and in which a thread finds all that it wants;
  // or null.
  const RegisterTile* find(BlockValue value, const RegisterLayout& want) const;
  bool is_defined_now(const RegisterTile& tile) const {
    return tile.scope == Stage::before || tile.scope == now();
  }
  static Value read(const RegisterTile& tile, const RegisterLayout& want, const Expr& index);

  // Element `index` of the value in this layout, loaded, converted or computed where no register has it.
  Value element(BlockValue value, const RegisterLayout& layout, const Expr& index);
  // Has registers hold it.
  void materialize(BlockValue value, const RegisterLayout& layout);
  // Puts the partial results of lanes together, so that every lane has them.
  void finish_lanes(BlockValue value);

 private:
  void load(BlockValue value, const RegisterLayout& layout);
  Value compute(BlockValue value, const RegisterLayout& layout, const Expr& index);
  Value compute_operand(BlockValue value, size_t operand, DType wanted, const RegisterLayout& layout,
                        const Expr& index);
  Value shifted_exp(BlockValue value, const ExpArithmetic& exp, const RegisterLayout& layout,
                    const Expr& index);

  TileBounds& bounds_;
  GlobalMemory& memory_;
  StagedTiles& staged_;
  Conversions& conversions_;
  ClusterReductions& cluster_;
  ChosenLayouts chosen_;
  std::vector<std::vector<RegisterTile>> tiles_;
};

}  // namespace quern
