// The numbers that are written in a graph and in a muGraph. One that stands for an extent does not follow
// when the extent shrinks; what an instance of other extents shows about it says little.
#pragma once

#include <string>
#include <vector>

#include "core/mugraph/mugraph.h"

namespace quern {

// Finite numbers of either program, each once.
std::vector<double> finite_numbers(const Graph& graph, const MuGraph& mugraph);

// A number that one of the programs has and the other has not, the counts of means and the products of
// extents among them, and 0, 1 and -1 not: "the number 12 is not in the graph". Empty when there is none.
std::string foreign_number(const Graph& graph, const MuGraph& mugraph);

// Whether a number written in the programs may stand for an extent.
bool names_extent(const Graph& graph, const MuGraph& mugraph);

}  // namespace quern
