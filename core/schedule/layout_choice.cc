#include "core/schedule/layout_choice.h"

#include <algorithm>

namespace quern {

namespace {

int64_t at(const LayoutEdge& edge, int from, int to) {
  return edge.costs[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

}  // namespace

LayoutPlan choose_layouts(const LayoutProblem& problem) {
  const int count = static_cast<int>(problem.tensors.size());
  LayoutPlan plan;
  for (int tensor = 0; tensor < count; ++tensor) {
    std::vector<int64_t> costs = problem.tensors[static_cast<size_t>(tensor)];
    for (const LayoutEdge& edge : problem.edges)
      for (int candidate = 0; candidate < static_cast<int>(costs.size()); ++candidate) {
        int64_t& cost = costs[static_cast<size_t>(candidate)];
        if (edge.to == tensor && edge.from < tensor)
          cost += at(edge, plan.candidates[static_cast<size_t>(edge.from)], candidate);
        if (edge.from == tensor && edge.to < tensor)
          cost += at(edge, candidate, plan.candidates[static_cast<size_t>(edge.to)]);
      }
    plan.candidates.push_back(static_cast<int>(std::min_element(costs.begin(), costs.end()) - costs.begin()));
  }
  plan.cost = *layout_cost(problem, plan.candidates);
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
