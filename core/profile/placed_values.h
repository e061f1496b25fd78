// Which values of a graph a reference program keeps in memory, and where.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/graph/graph.h"

namespace quern {

inline constexpr int64_t kStoredBytes = 48;  // of one element, as reference_device.cuh has it
inline constexpr int64_t kPartsOfSum = 128;  // the threads of a block

// By node.
struct PlacedValues {
  std::vector<bool> needed, stored;
  std::vector<bool> in_parts;    // a sum of which each thread of a block takes a part
  std::vector<int64_t> offsets;  // in the workspace, of those that are stored
  int64_t bytes = 0;             // of the workspace
};

// The extent of a sum's longest loop; 1 of anything else.
int64_t longest_loop(const Graph& graph, const Node& node);

// Sums are stored, and what would be computed more than once; the others are computed where they are read.
// `graph` is decomposed. UNSUPPORTED when a GPU would take long for all of it.
Result<PlacedValues> place_values(const Graph& graph);

}  // namespace quern
