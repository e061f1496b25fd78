// Dimensions that are joined where what computes with them has them as two: of keys that are repeated for the queries
// that share them, and of queries in groups.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph without repetitions: [.., g, 1, ..] that is broadcast to [.., g, r, ..] and reshaped to
// [.., g r, ..] stays what it is, and what is computed with it has g and r as two dimensions, up to where somebody
// asks for one. So do rows or matrices of a product that a reshape takes apart and another one joins again: [g r, n] of
// scores that are masked as [g, r, n] and multiplied as [g r, n] are [g, r, n] all the way. Repetitions stay where a product
// would have more dimensions than a grid has axes. Inputs and outputs are those of `graph`, in their order. Where nothing
// changes, `graph` itself.
Graph regroup(const Graph& graph);

}  // namespace quern
