#include "core/schedule/layout_choice.h"

#include <algorithm>

namespace quern {

namespace {

int64_t at(const LayoutEdge& edge, int from, int to) {
  return edge.costs[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

}  // namespace

// Goes down from the first candidates: by one tensor at a time, and where that is no better by two that a conversion joins.
LayoutPlan choose_layouts(const LayoutProblem& problem) {
  LayoutPlan plan;
  plan.candidates.assign(problem.tensors.size(), 0);
  plan.cost = *layout_cost(problem, plan.candidates);
  bool better = true;
  auto consider = [&](const std::vector<int>& candidates) {
    const int64_t cost = *layout_cost(problem, candidates);
    if (cost >= plan.cost) return;
    plan = {candidates, cost};
    better = true;
  };
  auto each_of = [&](int tensor, std::vector<int> candidates, const auto& then) {
    const auto at = static_cast<size_t>(tensor);
    for (size_t candidate = 0; candidate < problem.tensors[at].size(); ++candidate) {
      candidates[at] = static_cast<int>(candidate);
      then(candidates);
    }
  };
  while (better) {
    better = false;
    for (size_t tensor = 0; tensor < problem.tensors.size(); ++tensor)
      each_of(static_cast<int>(tensor), plan.candidates, consider);
    for (size_t edge = 0; !better && edge < problem.edges.size(); ++edge)
      each_of(problem.edges[edge].from, plan.candidates, [&](const std::vector<int>& candidates) {
        each_of(problem.edges[edge].to, candidates, consider);
      });
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
