// Softmaxes with parts that count in the sum alone, as attention sinks do.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph, where softmaxes over what is concatenated along their axis, and of which one part alone is read, are
// written out: the exponentials of that part over the sum of those of all parts, relative to the maximum of the part's
// elements and the other parts' maxima. Nothing is concatenated then, and the part goes through a loop as any softmax
// does. `graph` itself where there is none.
Graph without_sinks(const Graph& graph);

}  // namespace quern
