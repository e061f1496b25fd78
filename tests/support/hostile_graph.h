// Random graphs of the kinds that hostile inputs break: masks of every form, norms with weights, factors
// around products, exponentials, reductions, conditions, i32 arithmetic. Extents are small and mostly ragged,
// but for several tiles in each direction. What is discontinuous (comparisons, casts to i32) is applied to
// inputs and integers only, so that rounding cannot decide it. The same seed gives the same graph everywhere.
#pragma once

#include <cstdint>

#include "core/graph/graph.h"

namespace quern {

Graph hostile_graph(uint64_t seed);

}  // namespace quern
