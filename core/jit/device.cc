#include "core/jit/device.h"

namespace quern {

Status copy_to_gpu(const Driver& driver, uint64_t to, const void* from, size_t bytes) {
  if (bytes == 0) return Status();
  Status status = driver.check(driver.api().copy_to_device(to, from, bytes), "copying to the GPU");
  // Out of pageable memory the copy may return before its end has landed, which streams that do not wait for
  // the default one could see.
  if (status.ok()) status = driver.check(driver.api().stream_synchronize(nullptr), "copying to the GPU");
  return status;
}

Status copy_from_gpu(const Driver& driver, void* to, uint64_t from, size_t bytes) {
  if (bytes == 0) return Status();
  return driver.check(driver.api().copy_to_host(to, from, bytes), "copying from the GPU");
}

Result<DeviceMemory> DeviceMemory::allocate(std::shared_ptr<const Driver> driver, size_t bytes) {
  DeviceMemory memory;
  memory.driver_ = driver;
  memory.size_ = bytes;
  if (bytes == 0) return memory;
  uint64_t address = 0;
  const Status status = driver->check(driver->api().memory_allocate(&address, bytes),
                                      "allocating " + std::to_string(bytes) + " bytes");
  if (!status.ok()) return status;
  memory.address_ = std::shared_ptr<const uint64_t>(new uint64_t(address), [driver](const uint64_t* owned) {
    driver->api().memory_free(*owned);
    delete owned;
  });
  return memory;
}

Status DeviceMemory::upload(const void* from, size_t bytes) const {
  check(bytes <= size_, "upload past the end of device memory");
  return copy_to_gpu(*driver_, address(), from, bytes);
}

Status DeviceMemory::download(void* to, size_t bytes) const {
  check(bytes <= size_, "download past the end of device memory");
  return copy_from_gpu(*driver_, to, address(), bytes);
}

Status DeviceMemory::fill(uint8_t byte, void* stream) const {
  if (size_ == 0) return Status();
  return driver_->check(driver_->api().memory_fill(address(), byte, size_, stream), "filling GPU memory");
}

Result<HostMemory> HostMemory::allocate(std::shared_ptr<const Driver> driver, size_t bytes) {
  HostMemory memory;
  void* data = nullptr;
  const Status status = driver->check(driver->api().host_allocate(&data, bytes),
                                      "allocating " + std::to_string(bytes) + " page-locked bytes");
  if (!status.ok()) return status;
  memory.data_ = std::shared_ptr<char>(static_cast<char*>(data),
                                       [driver](char* owned) { driver->api().host_free(owned); });
  memory.size_ = bytes;
  return memory;
}

Result<std::unique_ptr<Device>> Device::open(std::shared_ptr<const Driver> driver, int ordinal) {
  Result<DeviceInfo> info = driver->device(ordinal);
  if (!info) return info.status();
  std::unique_ptr<Device> device(new Device(driver));
  device->info_ = *info;
  const DriverApi& api = driver->api();
  Status status = driver->check(api.device_get(&device->handle_, ordinal), "cuDeviceGet");
  if (status.ok())
    status = driver->check(api.primary_retain(&device->context_, device->handle_),
                           "opening GPU " + std::to_string(ordinal));
  if (status.ok()) status = device->make_current();
  if (!status.ok()) return status;
  return device;
}

Device::~Device() {
  if (context_) driver_->api().primary_release(handle_);
}

Result<uint64_t> Device::free_bytes() const {
  size_t free = 0, total = 0;
  const Status status =
      driver_->check(driver_->api().memory_info(&free, &total), "asking for the free memory");
  if (!status.ok()) return status;
  return free;
}

Status Device::make_current() const {
  return driver_->check(driver_->api().context_set(context_), "cuCtxSetCurrent");
}

}  // namespace quern
