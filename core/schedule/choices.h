// The three choices of one block as they were made, so that they can be made again: layouts of its tensors,
// levels of its steps, offsets in its shared memory.
#pragma once

#include "core/schedule/optimizer.h"

namespace quern {

// Empty lists stand for the greedy answers.
struct BlockChoices {
  std::vector<int> layouts;      // the candidate of every tensor
  std::vector<int> levels;       // of the steps before the loop, in it and after it, one after the other
  std::vector<int64_t> offsets;  // in bytes
  bool operator==(const BlockChoices&) const = default;
};

// Of each choice whether nothing costs less than what was chosen.
struct ProvenChoices {
  bool layouts = true, levels = true, offsets = true;
  bool all() const { return layouts && levels && offsets; }
};

// Answers the questions of one block in the order in which they come up: from `given` where it says, else by
// the optimizer if there is one, else greedily.
class Chooser {
 public:
  Chooser(const BlockChoices& given, Optimizer* optimizer) : given_(given), optimizer_(optimizer) {}

  // INVALID_ARGUMENT when what is given does not answer the question.
  Result<LayoutPlan> layouts(const LayoutProblem& problem);
  Result<OrderPlan> order(const OrderProblem& problem);  // of the next stage
  Result<MemoryPlan> memory(std::span<const MemoryBuffer> buffers);

  // What was chosen; what the greedy rules give anyway is left empty.
  BlockChoices made() const;
  ProvenChoices proven() const { return proven_; }
  // How many layouts each tensor may have.
  const std::vector<int>& candidates() const { return candidates_; }

 private:
  const BlockChoices given_;
  Optimizer* const optimizer_;
  BlockChoices made_, greedy_;
  ProvenChoices proven_;
  std::vector<int> candidates_;
};

}  // namespace quern
