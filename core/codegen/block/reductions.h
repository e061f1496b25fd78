// Reductions and accumulators. Sums over lanes and warps stay partial as long as only sums are made of them.
#pragma once

#include "core/codegen/block/moves.h"
#include "core/codegen/block/pipelined.h"

namespace quern {

// What is left when the operand of a reduction, in `from`, is reduced by every thread for itself.
RegisterTile reduced_tile(const BlockProgram& program, BlockValue reduction, const RegisterLayout& from);

class Reductions : BlockPart {
 public:
  Reductions(const BlockFacts& facts, BlockBody& body, const ProductPlans& plans, TileBounds& bounds,
             Values& values, Products& products, PipelinedProduct& pipelined, Moves& moves)
      : BlockPart(facts, body),
        plans_(plans),
        bounds_(bounds),
        values_(values),
        products_(products),
        pipelined_(pipelined),
        moves_(moves) {}

  void reduce(BlockValue value);
  void accumulate(BlockValue value);
  // Sums of wgmma groups for which an iteration waits at its end.
  const std::vector<Symbol>& outstanding() const { return outstanding_; }

 private:
  // Reduces the operand of a reduction into `registers`, which are there already.
  void reduce_into(BlockValue reduction, const Symbol& registers, Stage stage);
  // Registers in which an accumulator sums; and what an iteration adds.
  RegisterTile sums_of(BlockValue accumulator) const;
  void add_product(BlockValue accumulator, const RegisterTile& sums);
  Body rescale(BlockValue accumulator, const RegisterTile& sums);
  // A running maximum, and the factor by which it shifts what was summed before.
  void shift(BlockValue accumulator);
  // Declares the registers and starts them with the identity of the reduction.
  static Body started(const RegisterTile& tile);

  const ProductPlans& plans_;
  TileBounds& bounds_;
  Values& values_;
  Products& products_;
  PipelinedProduct& pipelined_;
  Moves& moves_;
  std::vector<Symbol> outstanding_;
};

}  // namespace quern
