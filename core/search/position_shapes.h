// Reshapes of what positions decide, such as masks that get extents of 1 for heads.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph, where what is made of iotas and numbers (core/mugraph/positions.h), and then reshaped by adding or removing
// extents of 1, is made of iotas of that shape instead: kernels compute tiles of it, as nothing has to lie in memory to be read in
// another shape. Inputs and outputs are those of `graph`, in their order. Where nothing changes, `graph` itself.
Graph reshape_positions(const Graph& graph);

}  // namespace quern
