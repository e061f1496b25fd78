#include "core/schedule/optimizer.h"

namespace quern {

namespace {

// An answer counts only if it keeps the rules and costs less than what is known.
template <class Plan, class Cost>
Optimized<Plan> judged(Optimized<Plan> found, const Plan& known, Cost Plan::*cost, const Result<Cost>& own) {
  if (!own || !(*own < known.*cost)) return {known, found.proven};
  found.plan.*cost = *own;
  return found;
}

}  // namespace

Optimized<MemoryPlan> Optimizer::memory(std::span<const MemoryBuffer> buffers) {
  const MemoryPlan known = plan_memory(buffers);
  if (known.peak == memory_bound(buffers)) return {known, true};
  Optimized<MemoryPlan> found = better(buffers, known);
  const Result<int64_t> peak = memory_peak(buffers, found.plan.offsets);
  return judged(std::move(found), known, &MemoryPlan::peak, peak);
}

Optimized<OrderPlan> Optimizer::order(const OrderProblem& problem) {
  const OrderPlan known = order_steps(problem);
  if (known.cost == order_bound(problem)) return {known, true};
  Optimized<OrderPlan> found = better(problem, known);
  const Result<OrderCost> cost = order_cost(problem, found.plan.levels);
  return judged(std::move(found), known, &OrderPlan::cost, cost);
}

Optimized<LayoutPlan> Optimizer::layouts(const LayoutProblem& problem) {
  const LayoutPlan known = choose_layouts(problem);
  if (known.cost == layout_bound(problem)) return {known, true};
  Optimized<LayoutPlan> found = better(problem, known);
  const Result<int64_t> cost = layout_cost(problem, found.plan.candidates);
  return judged(std::move(found), known, &LayoutPlan::cost, cost);
}

}  // namespace quern
