// What is done to every graph before it is cut into pieces.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph, as the rewrites that rewrites.cc lists have made it, one after the other: inputs and outputs are those of
// `graph`, in their order.
Graph rewritten(const Graph& graph);

}  // namespace quern
