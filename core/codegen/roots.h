// The choice of roots: see partition.h.
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace quern {

// The most statements an expression may need.
inline constexpr int kMaxExpression = 256;

std::vector<bool> choose_roots(const Graph& graph);

}  // namespace quern
