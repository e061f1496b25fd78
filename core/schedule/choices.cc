#include "core/schedule/choices.h"

namespace quern {

namespace {

template <class Cost>
Status misfit(const char* what, const Result<Cost>& cost) {
  return cost.status().with_context(std::string("the schedule's ") + what +
                                    " are not for this block, or for another version of its emitter");
}

}  // namespace

Result<LayoutPlan> Chooser::layouts(const LayoutProblem& problem) {
  LayoutPlan plan = choose_layouts(problem);
  greedy_.layouts = plan.candidates;
  for (const std::vector<int64_t>& tensor : problem.tensors)
    candidates_.push_back(static_cast<int>(tensor.size()));
  if (!given_.layouts.empty()) {
    const auto cost = layout_cost(problem, given_.layouts);
    if (!cost) return misfit("layouts", cost);
    plan = {given_.layouts, *cost};
  } else if (optimizer_) {
    auto best = optimizer_->layouts(problem);
    proven_.layouts &= best.proven;
    plan = std::move(best.plan);
  }
  made_.layouts = plan.candidates;
  return plan;
}

Result<OrderPlan> Chooser::order(const OrderProblem& problem) {
  OrderPlan plan = order_steps(problem);
  const size_t from = made_.levels.size(), count = static_cast<size_t>(problem.steps);
  greedy_.levels.insert(greedy_.levels.end(), plan.levels.begin(), plan.levels.end());
  if (!given_.levels.empty()) {
    const std::span<const int> all(given_.levels), own = all.subspan(std::min(from, all.size()));
    const std::span<const int> levels = own.first(std::min(count, own.size()));
    const auto cost = order_cost(problem, levels);
    if (!cost) return misfit("levels", cost);
    plan = {{levels.begin(), levels.end()}, *cost};
  } else if (optimizer_) {
    auto best = optimizer_->order(problem);
    proven_.levels &= best.proven;
    plan = std::move(best.plan);
  }
  made_.levels.insert(made_.levels.end(), plan.levels.begin(), plan.levels.end());
  return plan;
}

Result<MemoryPlan> Chooser::memory(std::span<const MemoryBuffer> buffers) {
  MemoryPlan plan = plan_memory(buffers);
  greedy_.offsets = plan.offsets;
  if (!given_.offsets.empty()) {
    const auto peak = memory_peak(buffers, given_.offsets);
    if (!peak) return misfit("offsets", peak);
    plan = {given_.offsets, *peak};
  } else if (optimizer_) {
    auto best = optimizer_->memory(buffers);
    proven_.offsets &= best.proven;
    plan = std::move(best.plan);
  }
  made_.offsets = plan.offsets;
  return plan;
}

BlockChoices Chooser::made() const {
  BlockChoices out = made_;
  if (out.layouts == greedy_.layouts) out.layouts.clear();
  if (out.levels == greedy_.levels) out.levels.clear();
  // Which memory is greedy depends on the levels.
  if (out.offsets == greedy_.offsets) out.offsets.clear();
  return out;
}

}  // namespace quern
