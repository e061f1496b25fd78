// Where buffers lie that are not all needed at once: the shared memory of a block between its barriers, or
// the workspace between launches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace quern {

// Needed from time `first` to time `last`, both included; what times are is the caller's: here, barriers or
// launches passed. A ring of stages is one buffer with the bytes of all of them.
struct MemoryBuffer {
  int64_t bytes = 0;
  int first = 0, last = 0;
  int64_t alignment = 16;
  bool operator==(const MemoryBuffer&) const = default;

  bool needed_with(const MemoryBuffer& other) const { return first <= other.last && other.first <= last; }
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one per buffer, a multiple of its alignment
  int64_t peak = 0;              // bytes in all
};

// Largest first, each at the lowest offset that is free for as long as it is needed. At most twice the bound
// in practice, seldom more than a tenth above it.
MemoryPlan plan_memory(std::span<const MemoryBuffer> buffers);
// What is needed at the fullest time: no plan takes less.
int64_t memory_bound(std::span<const MemoryBuffer> buffers);
// The peak of these offsets; INVALID_ARGUMENT names buffers that overlap, or one that is not aligned.
Result<int64_t> memory_peak(std::span<const MemoryBuffer> buffers, std::span<const int64_t> offsets);

}  // namespace quern
