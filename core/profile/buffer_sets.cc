#include "core/profile/buffer_sets.h"

#include <algorithm>

namespace quern {

namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kMostSets = 1000;       // a graph of so many launches is enough of a round
constexpr uint64_t kCopyBytes = 1u << 20;  // of several small sets: a copy takes longer than their bytes

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
  const uint64_t start = sets.memory_.address();
  for (uint64_t i = 0; i < count; ++i) {
    Set& set = sets.sets_.emplace_back();
    uint64_t at = start + i * stride;
    for (const auto& [descs, addresses] : {std::pair(&inputs, &set.inputs), {&outputs, &set.outputs}})
      for (const TensorDesc& desc : *descs) {
        addresses->push_back(at);
        at += aligned(buffer_bytes(desc));
      }
  }
  if (Status status = sets.fill(*device.driver(), bytes, stride); !status.ok()) return status;
  return sets;
}

Status BufferSets::fill(const Driver& driver, const std::vector<std::string>& bytes, uint64_t stride) {
  std::string one;
  for (const std::string& input : bytes) {
    const size_t end = one.size() + aligned(input.size());
    one += input;
    one.resize(end);
  }
  std::string several = one;
  uint64_t held = 1;
  for (; held < sets_.size() && (held + 1) * stride <= kCopyBytes; ++held) {
    several.resize(held * stride);
    several += one;
  }
  for (uint64_t i = 0; i < sets_.size(); i += held) {
    const uint64_t now = std::min(held, sets_.size() - i);
    const Status status =
        copy_to_gpu(driver, memory_.address() + i * stride, several.data(), (now - 1) * stride + one.size());
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace quern
