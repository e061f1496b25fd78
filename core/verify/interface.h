// What a muGraph and its graph must agree about before either is run on the inputs of the other.
#pragma once

#include "core/base/status.h"
#include "core/mugraph/mugraph.h"

namespace quern {

// INVALID_GRAPH unless inputs and outputs of the muGraph have the shapes and dtypes of the graph's.
Status check_interface(const Graph& graph, const MuGraph& mugraph);

}  // namespace quern
