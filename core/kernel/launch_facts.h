// How a kernel is launched, as far as it bears on what its accesses may touch.
#pragma once

#include <optional>
#include <vector>

#include "core/base/plan.h"

namespace quern::ir {

// What a parameter of the kernel points to: `elements` of its type, from an address that is a multiple of
// `alignment` bytes on. Of a tensor map: the map, and how many elements of it there are.
struct ParameterFacts {
  int64_t elements = 0;
  int64_t alignment = 16;
  std::optional<TensorMap> map;
};

struct LaunchFacts {
  Dim3 grid, cluster;
  std::vector<ParameterFacts> parameters;  // as the kernel's
};

}  // namespace quern::ir
