#include "core/schedule/layout_choice.h"

#include <algorithm>

namespace quern {

namespace {

int64_t at(const LayoutEdge& edge, int from, int to) {
  return edge.costs[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

}  // namespace

LayoutPlan choose_layouts(const LayoutProblem& problem) {
  LayoutPlan plan;
  plan.candidates.assign(problem.tensors.size(), 0);
  plan.cost = *layout_cost(problem, plan.candidates);
  for (bool better = true; better;) {
    better = false;
    for (size_t tensor = 0; tensor < problem.tensors.size(); ++tensor) {
      LayoutPlan other = plan;
      for (size_t candidate = 0; candidate < problem.tensors[tensor].size(); ++candidate) {
        other.candidates[tensor] = static_cast<int>(candidate);
        other.cost = *layout_cost(problem, other.candidates);
        if (other.cost >= plan.cost) continue;
        plan = other;
        better = true;
      }
    }
  }
  return plan;
}

int64_t layout_bound(const LayoutProblem& problem) {
  int64_t bound = 0;
  for (const std::vector<int64_t>& costs : problem.tensors)
    bound += *std::min_element(costs.begin(), costs.end());
  for (const LayoutEdge& edge : problem.edges) {
    int64_t least = edge.costs[0][0];
    for (const std::vector<int64_t>& row : edge.costs)
      least = std::min(least, *std::min_element(row.begin(), row.end()));
    bound += least;
  }
  return bound;
}

Result<int64_t> layout_cost(const LayoutProblem& problem, std::span<const int> candidates) {
  if (candidates.size() != problem.tensors.size())
    return Status(ErrorCode::INVALID_ARGUMENT, std::to_string(candidates.size()) + " layouts for " +
                                                   std::to_string(problem.tensors.size()) + " tensors");
  int64_t cost = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int candidate = candidates[i];
    if (candidate < 0 || candidate >= static_cast<int>(problem.tensors[i].size()))
      return Status(ErrorCode::INVALID_ARGUMENT,
                    "tensor " + std::to_string(i) + " has no layout number " + std::to_string(candidate));
    cost += problem.tensors[i][static_cast<size_t>(candidate)];
  }
  for (const LayoutEdge& edge : problem.edges)
    cost += at(edge, candidates[static_cast<size_t>(edge.from)], candidates[static_cast<size_t>(edge.to)]);
  return cost;
}

}  // namespace quern
