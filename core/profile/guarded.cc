#include "core/profile/guarded.h"

#include "core/base/random.h"

namespace quern {

namespace {

// No pattern that a kernel would write by chance.
std::string guard_bytes() {
  std::string bytes;
  Random random(0x9a4d);
  for (size_t i = 0; i < GuardedMemory::kGuard; ++i) bytes += static_cast<char>(random.bits());
  return bytes;
}
const std::string& guard() {
  static const std::string bytes = guard_bytes();
  return bytes;
}

}  // namespace

Result<GuardedMemory> GuardedMemory::allocate(const Device& device, size_t bytes) {
  GuardedMemory memory;
  memory.driver_ = device.driver();
  memory.bytes_ = bytes;
  auto allocated = device.allocate(bytes + 2 * kGuard);
  if (!allocated) return allocated.status();
  memory.memory_ = std::move(*allocated);
  if (Status status = memory.repair(); !status.ok()) return status;
  return memory;
}

Status GuardedMemory::upload(std::string_view bytes) const {
  return copy_to_gpu(*driver_, address(), bytes.data(), bytes.size());
}

Result<std::string> GuardedMemory::download() const {
  std::string bytes(bytes_, '\0');
  if (Status status = copy_from_gpu(*driver_, bytes.data(), address(), bytes_); !status.ok()) return status;
  return bytes;
}

Result<bool> GuardedMemory::holds(std::string_view bytes, const HostMemory& through) const {
  check(bytes.size() == bytes_ && through.size() > 0,
        "as many bytes as it has, by pieces that are not empty");
  for (size_t at = 0; at < bytes.size(); at += through.size()) {
    const std::string_view piece = bytes.substr(at, through.size());
    if (Status status = copy_from_gpu(*driver_, through.data(), address() + at, piece.size()); !status.ok())
      return status;
    if (piece != std::string_view(through.data(), piece.size())) return false;
  }
  return true;
}

Status GuardedMemory::fill(uint8_t byte, void* stream) const {
  if (bytes_ == 0) return {};
  return driver_->check(driver_->api().memory_fill(address(), byte, bytes_, stream), "filling GPU memory");
}

Result<std::string> GuardedMemory::damage() const {
  for (const bool above : {false, true}) {
    std::string now(kGuard, '\0');
    const Status status =
        copy_from_gpu(*driver_, now.data(), above ? address() + bytes_ : memory_.address(), kGuard);
    if (!status.ok()) return status;
    if (now == guard()) continue;
    size_t first = 0, count = 0;
    for (size_t i = kGuard; i-- > 0;)
      if (now[i] != guard()[i]) first = i, ++count;
    return std::to_string(count) + " bytes, from " +
           (above ? std::to_string(first) + " bytes behind its end on"
                  : std::to_string(kGuard - first) + " bytes before its beginning on");
  }
  return std::string();
}

Status GuardedMemory::repair() const {
  for (const uint64_t at : {memory_.address(), address() + bytes_})
    if (Status status = copy_to_gpu(*driver_, at, guard().data(), kGuard); !status.ok()) return status;
  return {};
}

}  // namespace quern
