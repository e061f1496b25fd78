// What values of a graph are made of.
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace quern {

// By value: whether one of these is it, or is made of it.
inline std::vector<bool> needed_values(const Graph& graph, const std::vector<ValueId>& by) {
  std::vector<bool> is(graph.nodes.size(), false);
  for (ValueId id : by) is[id] = true;
  for (size_t id = graph.nodes.size(); id-- > 0;)
    if (is[id])
      for (ValueId operand : graph.nodes[id].operands) is[operand] = true;
  return is;
}

}  // namespace quern
