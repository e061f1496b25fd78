// A product that is software-pipelined: what issues it in the next iteration, and what an iteration does when
// it has landed. core/kernel/passes/pipeline_products makes the loop.
#pragma once

#include "core/codegen/block/products.h"

namespace quern {

class PipelinedProduct : BlockPart {
 public:
  PipelinedProduct(const BlockFacts& facts, BlockBody& body, const ProductPlans& plans, Products& products,
                   Operands& operands)
      : BlockPart(facts, body), plans_(plans), products_(products), operands_(operands) {}

  bool is_there() const { return plans_.pipelined().value >= 0; }
  const Symbol& sums() const { return sums_; }
  // What asks for the product of the iteration before.
  Body issue();
  // The tile that the product takes in the next iteration is made now; when that of the iteration before has
  // landed its sums can be scaled (`rescale`), and the other operand put where it takes it from.
  void finish_iteration(const std::function<Body()>& rescale);
  // What passes get; to be called last.
  ir::PipelinedProduct draft();

 private:
  BlockValue product() const { return plans_.pipelined().value; }
  const MatmulPlan& plan() const { return plans_.of(product()); }
  BlockValue m_operand() const { return program_.op(product()).operands[static_cast<size_t>(plan().m_side)]; }

  const ProductPlans& plans_;
  Products& products_;
  Operands& operands_;
  Symbol sums_, words_;
  Body group_, rest_;
};

}  // namespace quern
