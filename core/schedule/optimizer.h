// Who makes the three choices of a block better than the greedy rules do: where shared memory lies
// (memory_plan), the order of its steps (operator_order), the layouts of its tensors (layout_choice).
//
// Only the interface: what implements it (z3_optimizer) is a library of its own, for processes that search.
#pragma once

#include "core/schedule/layout_choice.h"
#include "core/schedule/memory_plan.h"
#include "core/schedule/operator_order.h"

namespace quern {

template <class Plan>
struct Optimized {
  Plan plan;
  bool proven = false;  // nothing costs less; else the best that was found in time
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The greedy answer, or one that costs less. Deterministic where `proven`.
  Optimized<MemoryPlan> memory(std::span<const MemoryBuffer> buffers);
  Optimized<OrderPlan> order(const OrderProblem& problem);
  Optimized<LayoutPlan> layouts(const LayoutProblem& problem);

 protected:
  // An answer that costs less than `known`, or `known`. Its cost need not be filled in.
  virtual Optimized<MemoryPlan> better(std::span<const MemoryBuffer> buffers, const MemoryPlan& known) = 0;
  virtual Optimized<OrderPlan> better(const OrderProblem& problem, const OrderPlan& known) = 0;
  virtual Optimized<LayoutPlan> better(const LayoutProblem& problem, const LayoutPlan& known) = 0;
};

}  // namespace quern
