// Where a tensor has infinities or NaN: its parts, and the graph that looks at them.
#pragma once

#include "core/base/status.h"
#include "core/graph/graph.h"
#include "core/mugraph/mugraph.h"

namespace quern {

// How many parts a tensor of these extents has: neighbours along the last dimensions, about as many elements
// each as a block reads at a time.
int64_t finite_parts(const Ints& shape);
// How many dimensions are in front of those that parts cut: what differs in one of them is of other parts.
size_t dims_before_parts(const Ints& shape);

// Of one input, strides in elements: y[part], f32, is 0 where all elements of the part are finite, NaN
// elsewhere.
Result<Graph> finite_graph(DType dtype, const Ints& shape, const Ints& strides);

// The same of a dense tensor, as a kernel that may share the launch of one of so many threads: its input has the
// parts as rows.
Result<MuGraph> finite_mugraph(DType dtype, const Ints& shape, int threads);

}  // namespace quern
