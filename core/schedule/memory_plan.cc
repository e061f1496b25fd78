#include "core/schedule/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "core/base/integers.h"

namespace quern {

MemoryPlan plan_memory(std::span<const MemoryBuffer> buffers) {
  std::vector<size_t> order(buffers.size()), placed;  // placed: by rising offset
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  MemoryPlan plan;
  plan.offsets.resize(buffers.size());
  for (size_t i : order) {
    const MemoryBuffer& buffer = buffers[i];
    int64_t offset = 0;
    for (size_t other : placed) {
      if (!buffer.needed_with(buffers[other])) continue;
      if (offset + buffer.bytes <= plan.offsets[other]) break;
      offset = std::max(offset, round_up(plan.offsets[other] + buffers[other].bytes, buffer.alignment));
    }
    plan.offsets[i] = offset;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
                  i);
    plan.peak = std::max(plan.peak, offset + buffer.bytes);
  }
  return plan;
}

int64_t memory_bound(std::span<const MemoryBuffer> buffers) {
  int64_t most = 0;
  // The fullest time is the first of some buffer.
  for (const MemoryBuffer& at : buffers) {
    int64_t bytes = 0;
    for (const MemoryBuffer& buffer : buffers)
      if (buffer.first <= at.first && at.first <= buffer.last) bytes += buffer.bytes;
    most = std::max(most, bytes);
  }
  return most;
}

Result<int64_t> memory_peak(std::span<const MemoryBuffer> buffers, std::span<const int64_t> offsets) {
  auto wrong = [](const std::string& what) { return Status(ErrorCode::INVALID_ARGUMENT, what); };
  if (offsets.size() != buffers.size())
    return wrong(std::to_string(offsets.size()) + " offsets for " + std::to_string(buffers.size()) +
                 " buffers");
  int64_t peak = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (offsets[i] < 0 || offsets[i] % buffers[i].alignment != 0)
      return wrong("buffer " + std::to_string(i) + " at offset " + std::to_string(offsets[i]) +
                   " is not aligned to " + std::to_string(buffers[i].alignment));
    peak = std::max(peak, offsets[i] + buffers[i].bytes);
    for (size_t j = 0; j < i; ++j)
      if (buffers[i].needed_with(buffers[j]) && offsets[i] < offsets[j] + buffers[j].bytes &&
          offsets[j] < offsets[i] + buffers[i].bytes)
        return wrong("buffers " + std::to_string(j) + " and " + std::to_string(i) +
                     " overlap while both are needed");
  }
  return peak;
}

}  // namespace quern
