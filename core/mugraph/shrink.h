// A small instance of a muGraph and of the graph it is meant to compute.
#pragma once

#include "core/mugraph/mugraph.h"
#include "core/mugraph/short_iotas.h"

namespace quern {

struct Instance {
  MuGraph mugraph;
  Graph graph;
  // Of inputs behind the others.
  ShortIotas mugraph_iotas = {}, graph_iotas = {};
};

// The same programs over short dimensions: every grid, cluster and loop extent and every extent of a tile is
// at least 2 if it was, and ragged edges stay ragged. Numbers written in the programs stay as they are;
// constants that name extents follow them. What has no consistent small choice keeps its extents. Both must
// be valid; the muGraph's inputs and outputs must have the shapes of the graph's. UNSUPPORTED with the reason
// when they have not, or when the two cannot be built again. What an iota counts keeps its extent, because it
// is in its values; with `short_iotas` those that become shorter are inputs instead, behind the others. Tiles of what is summed over have about `terms` elements, if that
// is not 0.
Result<Instance> shrink(const MuGraph& mugraph, const Graph& graph, bool short_iotas = false,
                        int64_t terms = 0);

// How much there is to compute: elements of all values of all blocks and iterations, those of a matmul times
// the inner extent.
double work(const MuGraph& mugraph);

}  // namespace quern
