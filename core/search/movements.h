// Movements of what is cast, in the narrower of the two dtypes.
#pragma once

#include "core/graph/graph.h"

namespace quern {

// The same graph, where casts to f32 that change no value are behind the reshapes, transposes, slices and broadcasts that
// read them, and casts to 16 bits in front of those whose result nobody else reads. So what is moved is what lies in memory,
// which kernels read where it is, and no value is stored in f32 to be moved alone. Inputs and outputs are those of `graph`, in
// their order. Where nothing changes, `graph` itself.
Graph narrow_movements(const Graph& graph);

}  // namespace quern
