#include "core/profile/buffer_sets.h"

#include <algorithm>

namespace quern {

namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kMostSets = 1000;  // a graph of so many launches is enough of a round

uint64_t aligned(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

size_t buffer_bytes(const TensorDesc& desc) {
  return static_cast<size_t>(desc.span()) * dtype_size(desc.dtype);
}

Result<BufferSets> BufferSets::make(const Device& device, const std::vector<TensorDesc>& inputs,
                                    const std::vector<TensorDesc>& outputs,
                                    const std::vector<std::string>& bytes, uint64_t most_bytes) {
  BufferSets sets;
  sets.l2_bytes_ = device.info().l2_bytes;
  uint64_t stride = 0;
  for (const TensorDesc& desc : inputs) {
    stride += aligned(buffer_bytes(desc));
    sets.set_bytes_ += buffer_bytes(desc);
  }
  for (const TensorDesc& desc : outputs) stride += aligned(buffer_bytes(desc));
  stride = aligned(stride);
  const uint64_t wanted =
      std::clamp<uint64_t>(4 * sets.l2_bytes_ / std::max<uint64_t>(sets.set_bytes_, 1) + 2, 2, kMostSets);
  // Room for the sweep, too.
  const uint64_t sweep = 2 * sets.l2_bytes_;
  const uint64_t room = most_bytes > sweep ? (most_bytes - sweep) / stride : 0;
  if (room < 2)
    return Status(ErrorCode::OUT_OF_MEMORY, "two sets of buffers of " + std::to_string(stride) +
                                                " bytes do not fit the " + std::to_string(most_bytes) +
                                                " bytes of the GPU that may be used");
  const uint64_t count = std::min(wanted, room);
  auto memory = device.allocate(count * stride);
  if (!memory) return memory.status();
  auto swept = device.allocate(sweep);
  if (!swept) return swept.status();
  sets.memory_ = std::move(*memory);
  sets.sweep_ = std::move(*swept);
  uint64_t at = sets.memory_.address();
  for (uint64_t i = 0; i < count; ++i) {
    Set& set = sets.sets_.emplace_back();
    for (size_t input = 0; input < inputs.size(); ++input) {
      set.inputs.push_back(at);
      const std::string& from = bytes[input];
      const Status status = copy_to_gpu(*device.driver(), at, from.data(), from.size());
      if (!status.ok()) return status;
      at += aligned(from.size());
    }
    for (const TensorDesc& desc : outputs) {
      set.outputs.push_back(at);
      at += aligned(buffer_bytes(desc));
    }
    at = sets.memory_.address() + (i + 1) * stride;
  }
  return sets;
}

}  // namespace quern
