// Rewrites composite operators (softmax, rms_norm, layer_norm, mean) into the primitive ones that define
// them.
#pragma once

#include <optional>

#include "core/graph/graph.h"

namespace quern {

// The same inputs and outputs, with no composite operators. Values inside a definition have dtype f32 and are
// not rounded; its result keeps the dtype of the composite, without a cast. A softmax is always shifted by
// its maximum. Casts in front of products say whether they keep precision. `result_of`, if given, gets for
// every value of `graph` the one it became.
Graph decompose(const Graph& graph, std::vector<ValueId>* result_of = nullptr);

// Which values of a graph are casts that keep precision: from f32 to a narrower float, and only multiplied.
std::vector<bool> kept_casts(const Graph& graph);

// For each value of a decomposed graph: the 16-bit dtype to which all softmaxes over it are rounded, if there are any.
std::vector<std::optional<DType>> softmax_dtypes(const Graph& primitive);

}  // namespace quern
