// Rewrites a graph of primitive operators into one that has good and simple kernels: every step is a graph
// again.
#pragma once

#include "core/base/target.h"
#include "core/graph/graph.h"

namespace quern {

// The same inputs and outputs, with these properties:
//   - only what the outputs need, and every output is a value of its own: no input, no number, no other
//   output;
//   - no reduction or matrix product over nothing, unless its result is empty: those are numbers;
//   - matrix products of rank 2 or more, and batches that share the right operand folded into its rows;
//   - a matrix product with too few tiles to fill a GPU is a batch of products over parts of k, and a sum;
//   - a reduction with few rows that are too long for the shared memory of a cluster is one over parts of the
//     rows, and one over these.
// Shapes inside may have one dimension more than kMaxRank allows.
Graph prepare(const Graph& graph, const Target& target);

}  // namespace quern
