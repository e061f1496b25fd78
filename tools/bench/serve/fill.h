// A cache directory with plans of a given size, as a daemon would have left it: written straight into the
// store.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace quern::serve {

// The graph of a number, and its plan: bytes that do not compress, of about this size.
std::string graph_text(uint64_t number);
std::string plan_bytes(uint64_t number, size_t size);

struct Fill {
  std::string directory;
  uint64_t first = 0, count = 0;  // numbers of graphs
  size_t plan_bytes = 0;
  uint64_t max_bytes = uint64_t{5} << 30;  // what the store may take before it evicts
};
// The number of evictions that it took.
Result<uint64_t> fill(const Fill& fill);

inline constexpr const char* kTarget = "sm_90a";

}  // namespace quern::serve
