#include "core/schedule/operator_order.h"

#include <algorithm>
#include <numeric>

namespace quern {

namespace {

// Edges by the step they lead to. They go forward in the list, so one pass sees every `from` before its `to`.
std::vector<OrderEdge> by_target(const OrderProblem& problem) {
  std::vector<OrderEdge> edges = problem.edges;
  for (const OrderEdge& edge : edges)
    check(edge.from >= 0 && edge.from < edge.to && edge.to < problem.steps, "the list is one valid order");
  std::stable_sort(edges.begin(), edges.end(),
                   [](const OrderEdge& a, const OrderEdge& b) { return a.to < b.to; });
  return edges;
}

OrderPlan levels_of(const OrderProblem& problem, bool keep_list) {
  OrderPlan plan;
  plan.levels.assign(static_cast<size_t>(problem.steps), 0);
  const std::vector<OrderEdge> edges = by_target(problem);
  size_t next = 0;
  for (int step = 0; step < problem.steps; ++step) {
    int& level = plan.levels[static_cast<size_t>(step)];
    if (keep_list && step > 0) level = plan.levels[static_cast<size_t>(step) - 1];
    for (; next < edges.size() && edges[next].to == step; ++next)
      level =
          std::max(level, plan.levels[static_cast<size_t>(edges[next].from)] + (edges[next].barrier ? 1 : 0));
  }
  plan.cost = *order_cost(problem, plan.levels);
  return plan;
}

}  // namespace

std::vector<int> OrderPlan::order() const {
  std::vector<int> out(levels.size());
  std::iota(out.begin(), out.end(), 0);
  std::stable_sort(out.begin(), out.end(), [&](int a, int b) {
    return levels[static_cast<size_t>(a)] < levels[static_cast<size_t>(b)];
  });
  return out;
}

OrderPlan order_as_listed(const OrderProblem& problem) { return levels_of(problem, true); }
OrderPlan order_by_depth(const OrderProblem& problem) { return levels_of(problem, false); }

OrderPlan order_steps(const OrderProblem& problem) {
  OrderPlan listed = order_as_listed(problem), by_depth = order_by_depth(problem);
  return by_depth.cost < listed.cost ? by_depth : listed;
}

OrderCost order_bound(const OrderProblem& problem) {
  OrderCost bound{order_by_depth(problem).cost.barriers, 0};
  for (const OrderBuffer& buffer : problem.buffers) bound.bytes = std::max(bound.bytes, buffer.bytes);
  return bound;
}

Result<OrderCost> order_cost(const OrderProblem& problem, std::span<const int> levels) {
  auto wrong = [](const std::string& what) { return Status(ErrorCode::INVALID_ARGUMENT, what); };
  if (levels.size() != static_cast<size_t>(problem.steps))
    return wrong(std::to_string(levels.size()) + " levels for " + std::to_string(problem.steps) + " steps");
  auto level = [&](int step) { return levels[static_cast<size_t>(step)]; };
  OrderCost cost;
  for (int step = 0; step < problem.steps; ++step) {
    if (level(step) < 0 || level(step) >= std::max(problem.steps, 1))
      return wrong("step " + std::to_string(step) + " has level " + std::to_string(level(step)));
    cost.barriers = std::max(cost.barriers, level(step));
  }
  for (const OrderEdge& edge : problem.edges)
    if (level(edge.to) < level(edge.from) + (edge.barrier ? 1 : 0))
      return wrong("step " + std::to_string(edge.to) + " comes too early after step " +
                   std::to_string(edge.from));
  for (int at = 0; at <= cost.barriers; ++at) {
    int64_t bytes = 0;
    for (const OrderBuffer& buffer : problem.buffers)
      if (level(buffer.writer) <= at && at <= level(buffer.reader)) bytes += buffer.bytes;
    cost.bytes = std::max(cost.bytes, bytes);
  }
  return cost;
}

}  // namespace quern
