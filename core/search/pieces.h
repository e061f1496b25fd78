// Cuts a graph into pieces that the search can take whole, at the least traffic between them, and puts the
// muGraphs of the pieces together again.
#pragma once

#include <string>
#include <vector>

#include "core/mugraph/mugraph.h"

namespace quern {

struct Piece {
  std::vector<ValueId> nodes;            // of the whole graph, operands before users
  Graph graph;                           // the piece on its own
  std::vector<ValueId> inputs, outputs;  // of `graph`, as values of the whole graph
  std::string outside;                   // why it is left to the baseline; empty: it is searched
};

// Pieces in an order in which they can run. No piece needs more than `bound` operators as it is written.
std::vector<Piece> cut_into_pieces(const Graph& graph, int bound);

// The piece without a search: every operator a kernel of its own.
MuGraph as_library_kernels(const Piece& piece);

// One muGraph for the graph from one for each piece.
Result<MuGraph> assemble(const Graph& graph, const std::vector<Piece>& pieces,
                         const std::vector<const MuGraph*>& parts);

}  // namespace quern
