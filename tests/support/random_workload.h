// Random instances of what models are made of, small and mostly ragged: attention in its variants, norms
// before linear maps, gated and plain MLPs, adapters, gates of experts, products, reductions. The same seed
// gives the same graph everywhere. random_graph() knows every operator, this the company they keep.
#pragma once

#include <cstdint>

#include "core/graph/graph.h"

namespace quern {

Graph random_workload(uint64_t seed);

}  // namespace quern
