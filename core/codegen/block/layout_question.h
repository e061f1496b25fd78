// The question that a block puts to core/schedule's layout choice: which layouts its tensors may have, and
// what they cost.
//
// Registers hold what cannot be computed again for free: sums of products in the fragments of tensor cores,
// reductions in slices of what they reduce, loads. The rest is computed where it is asked for. What there is
// to choose is how reductions, accumulators and exchanges ask for their operands, how stores ask for what
// they write, and how loads come first.
#pragma once

#include <map>
#include <set>

#include "core/codegen/block/product_plans.h"
#include "core/codegen/block/values.h"
#include "core/schedule/choices.h"
#include "core/schedule/layout_choice.h"

namespace quern {

class LayoutQuestion {
 public:
  LayoutQuestion(const BlockFacts& facts, const ProductPlans& plans);

  const LayoutProblem& problem() const { return problem_; }
  // Of conversions, so that what is held can be had where it is asked for.
  int64_t conversion_cycles(const LayoutPlan& plan) const {
    return *layout_cost(conversions_, plan.candidates);
  }
  // For every value the layout in which operators ask for all of it.
  std::map<BlockValue, RegisterLayout> answer(const LayoutPlan& plan) const;
  // Whether some of the tiles that the value is made of, element by element, are partial.
  bool waits_for_parts(BlockValue value) const {
    Seen seen;
    return waits_for_parts(value, seen);
  }

 private:
  // Where a way through the operators has been: values meet again, so that ways are more than values.
  using Seen = std::set<BlockValue>;
  using Asked = std::map<BlockValue, std::vector<std::vector<RegisterLayout>>>;  // in which layouts

  // What registers hold of a value, for every candidate of a variable; without one there is one tile.
  struct Held {
    int variable = -1;
    std::vector<RegisterTile> tiles;
  };
  // A tensor with a choice.
  struct Variable {
    BlockValue value;
    std::vector<RegisterLayout> candidates;
    bool complete = true;  // no more candidates: something else depends on them
  };
  // A value that is held, or a source, asked for in a layout for every candidate of a variable (or in one).
  struct Ask {
    BlockValue value;
    int variable;
    std::vector<RegisterLayout> wants;
    int64_t times;
  };
  struct Layouts {
    int variable;
    std::vector<RegisterLayout> layouts;
  };

  Held& held(BlockValue value) { return held_[static_cast<size_t>(value)]; }
  const Held& held(BlockValue value) const { return held_[static_cast<size_t>(value)]; }
  // Comes from memory again whenever it is asked for in another layout.
  bool is_source(BlockValue value) const {
    const BlockOp& op = program_.op(value);
    return op.is_load() || op.is_reduce_cluster();
  }
  // Whether the operand is repeated nowhere: it may have fewer dimensions, of one element.
  bool is_whole(BlockValue value, BlockValue operand) const {
    return program_.op(operand).type.element_count() == program_.op(value).type.element_count();
  }
  int64_t times(Stage stage) const { return stage == Stage::loop ? facts_.kernel.trip_count : 1; }

  void visit(BlockValue value);
  void hold(BlockValue value, const RegisterLayout& layout, unsigned partial_warps = 0);
  void product(BlockValue value);
  // Sums of products lie as tensor cores have them, others as their operand.
  void accumulate(BlockValue value);
  void publish(BlockValue operand);
  bool waits_for_parts(BlockValue value, Seen& seen) const;
  // As the value lies, if every thread has whole results; else in vectors, of which every block of a cluster
  // has its part.
  void store(BlockValue value);
  int choose_for(Variable variable);
  // In which layouts an operator asks for all of an operand: where it lies, or as is to be chosen.
  Layouts consult(BlockValue value, Stage stage);
  // The layout that a value has, or is asked for in by a product, or that loads it best; nothing if it is
  // made of nothing that has one.
  std::optional<RegisterLayout> known_layout(BlockValue value, Seen& seen) const;
  // The layout of an operand of a value that has as many elements, as one of the value.
  RegisterLayout as_operand_of(BlockValue value, BlockValue operand, const RegisterLayout& layout) const;
  // In vectors of the load that the value is made of.
  RegisterLayout vectors(BlockValue value) const;
  RegisterLayout usual(BlockValue value) const {
    Seen seen;
    const auto layout = known_layout(value, seen);
    return layout ? *layout : vectors(value);
  }
  // The usual one first.
  std::vector<RegisterLayout> candidates(BlockValue value) const;
  // Those of what the value is made of, element by element.
  void collect(BlockValue value, std::vector<RegisterLayout>& out, Seen& seen) const;
  // Down to what is held or comes from memory.
  void ask(BlockValue value, int variable, std::vector<RegisterLayout> wants, Stage stage) {
    Asked asked;
    ask(value, variable, std::move(wants), stage, asked);
  }
  void ask(BlockValue value, int variable, std::vector<RegisterLayout> wants, Stage stage, Asked& asked);
  void add_candidates(const Ask& ask);
  // What a tensor costs by itself.
  void count_own(const Variable& variable);
  int64_t reduce_cycles(BlockValue value, const RegisterLayout& from) const;
  // Of a load or store, or of reading what the blocks of a cluster have left.
  int64_t memory_cycles(BlockValue value, const RegisterLayout& layout) const;
  void count_ask(const Ask& ask);
  // Between variables, or of one alone, where the other side has no choice. What nobody can choose stands
  // with the first.
  static void count_edge(LayoutProblem& problem, int from, int to,
                         const std::vector<std::vector<int64_t>>& costs);

  const BlockFacts& facts_;
  const ProductPlans& plans_;
  const BlockProgram& program_;
  std::vector<Held> held_;
  std::vector<int> variables_;  // of values, -1: none
  std::vector<Variable> tensors_;
  std::vector<Ask> asks_;
  LayoutProblem problem_, conversions_;
};

// INVALID_ARGUMENT when the chooser's choices are not for this block.
Result<ChosenLayouts> choose_layouts(const BlockFacts& facts, const ProductPlans& plans, Chooser& chooser);

}  // namespace quern
