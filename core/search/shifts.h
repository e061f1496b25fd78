// Softmaxes of what is relative to its maximum already.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph, where a softmax over x - max(x), the maximum over the same axes, is one over x: it is relative to that maximum
// by itself. Inputs and outputs are those of `graph`, in their order. Where nothing changes, `graph` itself.
Graph without_shifts(const Graph& graph);

}  // namespace quern
