// Random valid graphs from a seed: the same seed gives the same graph everywhere. Their values stay in a
// range in which a comparison with the reference means something: nothing overflows f16 by accident, and what
// is discontinuous (comparisons, casts to integers) is applied to exact values only.
#pragma once

#include <cstdint>

#include "core/graph/graph.h"

namespace quern {

struct RandomGraphOptions {
  int max_ops = 8;
  int64_t max_elements = 2048;  // of any tensor
  bool empty_extents = true;    // now and then an extent of 0
  std::vector<int64_t> extents = {1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64};
};

Graph random_graph(uint64_t seed, const RandomGraphOptions& options = {});

}  // namespace quern
