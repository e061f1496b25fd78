// Puts the muGraphs of a graph's pieces together again.
#pragma once

#include <vector>

#include "core/mugraph/mugraph.h"
#include "core/search/pieces.h"

namespace quern {

// The piece without a search: every operator a kernel of its own.
MuGraph as_library_kernels(const Piece& piece);

// What kernels do and how they are cut, without names and extents; and only which of them have a loop.
std::string kernel_forms(const MuGraph& mugraph);
std::string kernel_loops(const MuGraph& mugraph);

// One muGraph for the graph from one for each piece.
Result<MuGraph> assemble(const Graph& graph, const std::vector<const Piece*>& pieces,
                         const std::vector<const MuGraph*>& parts);

}  // namespace quern
