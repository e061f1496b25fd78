// Memory on a GPU with guard zones on both sides: what is written past its ends is seen.
#pragma once

#include <string>

#include "core/jit/device.h"

namespace quern {

class GuardedMemory {
 public:
  static constexpr size_t kGuard = 4096;  // bytes on each side

  GuardedMemory() = default;
  // `bytes` at a multiple of 256, the upper guard right behind them.
  static Result<GuardedMemory> allocate(const Device& device, size_t bytes);

  uint64_t address() const { return memory_.address() + kGuard; }
  size_t size() const { return bytes_; }
  Status upload(std::string_view bytes) const;
  Result<std::string> download() const;
  // Whether these bytes, as many as it has, are what it holds. They are copied to `through`, piece by piece.
  Result<bool> holds(std::string_view bytes, const HostMemory& through) const;
  Status fill(uint8_t byte, void* stream) const;
  // What was written into the guards: "3 bytes from 16 bytes before it on"; empty: nothing.
  Result<std::string> damage() const;
  // Puts the guards back as they were.
  Status repair() const;

 private:
  std::shared_ptr<const Driver> driver_;
  DeviceMemory memory_;
  size_t bytes_ = 0;
};

}  // namespace quern
