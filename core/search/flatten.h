// Rows that lie in several dimensions and become those of one matrix.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph, where products of [.., m, k] with one matrix [k, n] are products of all rows, [.. m, k]: so tiles go over the
// ends of the m rows, which need not be a multiple of theirs. What is computed element by element, or along the last
// dimension, with what these read and make has its rows in one dimension as well. Where it meets something else, it is reshaped;
// rows stay as they are where that would part a product from another one, or, if a matrix has enough rows, from what is
// computed with it. Inputs and outputs are those of `graph`, in their order. Where nothing changes, `graph` itself.
Graph flatten_rows(const Graph& graph);

}  // namespace quern
