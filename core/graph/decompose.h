// Rewrites composite operators (softmax, rms_norm, layer_norm, mean) into the primitive ones that define
// them.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same inputs and outputs, with no composite operators. Values inside a definition have dtype f32 and are
// not rounded; its result keeps the dtype of the composite, without a cast. A softmax is always shifted by
// its maximum.
Graph decompose(const Graph& graph);

}  // namespace quern
