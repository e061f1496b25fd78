// Integers that a graph compares with positions, as the lengths of sequences are.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace quern {

// By input: the extent of the positions that it is compared with; 0 for inputs that are no such integers.
std::vector<int64_t> compared_positions(const Graph& graph);

// Lengths as sequences have them: between the half and all of `extent`; with `any` from none to one more than all.
std::string length_buffer(const TensorDesc& desc, int64_t extent, uint64_t seed, bool any = false);

}  // namespace quern
