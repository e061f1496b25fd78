// Values that are repeated in front of operators that would repeat them anyway.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph, where products and elementwise operators read what a broadcast repeats, in place of the repetition, also behind
// transposes, casts, operators of one operand, and reshapes that only add or remove extents of 1. So keys that all heads share and
// expanded masks are no tensors of their own. Inputs and outputs are those of `graph`, in their order. Where nothing changes,
// `graph` itself.
Graph without_broadcasts(const Graph& graph);

}  // namespace quern
