// One GPU with its primary context, and memory on it: for the worker and the tools, which have no context of
// their own.
#pragma once

#include <cstdint>
#include <memory>

#include "core/jit/driver.h"

namespace quern {

// Of memory that the current context can reach; complete when they return. They wait for nothing but the
// default stream: synchronize other streams first.
Status copy_to_gpu(const Driver& driver, uint64_t to, const void* from, size_t bytes);
Status copy_from_gpu(const Driver& driver, void* to, uint64_t from, size_t bytes);

// Copies share one allocation, freed with the last of them. The device must outlive them.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // In the current context; at least 256-byte aligned. 0 bytes give address 0.
  static Result<DeviceMemory> allocate(std::shared_ptr<const Driver> driver, size_t bytes);

  uint64_t address() const { return address_ ? *address_ : 0; }
  size_t size() const { return size_; }
  // Copies of `bytes` from the start, as above.
  Status upload(const void* from, size_t bytes) const;
  Status download(void* to, size_t bytes) const;
  // Sets every byte, in the order of `stream`.
  Status fill(uint8_t byte, void* stream) const;

 private:
  std::shared_ptr<const Driver> driver_;
  std::shared_ptr<const uint64_t> address_;
  size_t size_ = 0;
};

// Page-locked memory of the host, which a GPU copies to several times as fast as to other memory. Copies share one
// allocation, freed with the last of them.
class HostMemory {
 public:
  HostMemory() = default;
  static Result<HostMemory> allocate(std::shared_ptr<const Driver> driver, size_t bytes);

  char* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<char> data_;
  size_t size_ = 0;
};

class Device {
 public:
  // Retains the primary context and makes it current for this thread. NO_DEVICE when there is no such GPU.
  static Result<std::unique_ptr<Device>> open(std::shared_ptr<const Driver> driver, int ordinal = 0);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  const std::shared_ptr<const Driver>& driver() const { return driver_; }
  // For every further thread that is to use it.
  Status make_current() const;
  // Of its memory, what nobody has allocated now.
  Result<uint64_t> free_bytes() const;
  Result<DeviceMemory> allocate(size_t bytes) const { return DeviceMemory::allocate(driver_, bytes); }

 private:
  explicit Device(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {}

  std::shared_ptr<const Driver> driver_;
  DeviceInfo info_;
  int handle_ = 0;  // CUdevice
  void* context_ = nullptr;
};

}  // namespace quern
