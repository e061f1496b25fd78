// Which values of a graph a reference program keeps in memory, and where.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/graph/graph.h"

namespace quern {

inline constexpr int64_t kStoredBytes = 48;  // of one element, as reference_device.cuh has it

// By node.
struct PlacedValues {
  std::vector<bool> needed, stored;
  std::vector<int64_t> offsets;  // in the workspace, of those that are stored
  int64_t bytes = 0;             // of the workspace
};

// Sums are stored, and what would be computed more than once; the others are computed where they are read.
// `graph` is decomposed. UNSUPPORTED when a GPU would take long for all of it.
Result<PlacedValues> place_values(const Graph& graph);

}  // namespace quern
