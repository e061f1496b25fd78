// The canonical form of a graph: equal for programs that differ only in names, order of statements, dead
// code, repeated subexpressions and spelled-out defaults; different whenever anything differs that a kernel
// depends on.
#pragma once

#include <string>

#include "core/graph/graph.h"

namespace quern {

// Inputs first, in declaration order and all of them (they are the caller's buffers), as i0, i1, ...; then
// what the outputs need, in depth-first order from the first output, as t0, t1, ..., equal computations once.
// The graph is named "g".
Graph canonicalize(const Graph& graph);

// print_graph(canonicalize(graph)): the text that is hashed, stored, and compared on a hit.
std::string canonical_text(const Graph& graph);

}  // namespace quern
