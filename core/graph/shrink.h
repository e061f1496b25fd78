// A small instance of a graph: the same program over shorter dimensions, for engines that are too slow for
// the real ones (the emulator, exact evaluators).
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same inputs, operators, attributes and outputs, with every extent above `max_extent` shortened to at
// most that, and the others kept. Dimensions that an operator makes equal stay equal, equal extents shrink
// alike, and extents of different size stay different as far as there is room; what an extent leaves modulo a
// tile (a power of two, a quarter of max_extent or less) is kept, so that ragged stays ragged. An extent made
// of others (a reshape that joins dimensions, a concat) is made of the shortened ones and may be above
// max_extent. Where a reshape or slice leaves no consistent choice, the extents that meet there are kept.
// INVALID_ARGUMENT for a max_extent below 1.
Result<Graph> shrink(const Graph& graph, int64_t max_extent);

// How much there is to compute: elements of all values that outputs need, those of a matmul times the inner
// extent.
double work(const Graph& graph);

}  // namespace quern
