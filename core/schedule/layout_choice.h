// One layout for every tensor of a block, so that what the layouts themselves cost and what converting
// between them costs is least in all.
//
// Which layouts a tensor may have, and the costs, are the caller's (conversion.h estimates conversions); here
// they are numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace quern {

struct LayoutEdge {
  int from, to;                             // tensors
  std::vector<std::vector<int64_t>> costs;  // [candidate of from][candidate of to]
};

struct LayoutProblem {
  // For each tensor what each of its candidates costs by itself (loading it so, reducing it so); at least one
  // candidate. No cost is negative.
  std::vector<std::vector<int64_t>> tensors;
  std::vector<LayoutEdge> edges;
};

struct LayoutPlan {
  std::vector<int> candidates;  // one per tensor
  int64_t cost = 0;
};

// From the first candidate of each tensor on, which is best put to what its users ask for: tensor by tensor
// as is best with the others as they are, until no single one can be better.
LayoutPlan choose_layouts(const LayoutProblem& problem);
// The cheapest candidate of every tensor and entry of every edge: no choice costs less.
int64_t layout_bound(const LayoutProblem& problem);
// INVALID_ARGUMENT names a tensor that has no such candidate.
Result<int64_t> layout_cost(const LayoutProblem& problem, std::span<const int> candidates);

}  // namespace quern
