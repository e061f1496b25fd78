// Concatenations of what has been computed become concatenations of what lies in memory.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph, where a part of a concatenation that one elementwise operator makes of a view or of an input, as the negated half
// of a rotary embedding, is that view or input, and the operator is behind: concat(-a, b) is where(position < n, -c, c)
// with c = concat(a, b). So nothing is stored to be concatenated, and what reads it computes it. `graph` itself where there is
// none.
Graph operators_behind_concats(const Graph& graph);

}  // namespace quern
