// Values that are repeated, as keys are for the queries that share them.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph without repetitions: [.., g, 1, ..] that is broadcast to [.., g, r, ..] and reshaped to
// [.., g r, ..] stays what it is, and what is computed with it has g and r as two dimensions, up to where somebody
// asks for one. Inputs and outputs are those of `graph`, in their order. Without such repetitions, `graph` itself.
Graph without_repetitions(const Graph& graph);

}  // namespace quern
