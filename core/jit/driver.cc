#include "core/jit/driver.h"

#include <stdlib.h>

namespace quern {

namespace {

// CUresult values that mean something special here.
constexpr int kOutOfMemory = 2;
constexpr int kStubLibrary = 34;
constexpr int kNoDevice = 100;

// CUdevice_attribute values.
constexpr int kMultiprocessorCount = 16;
constexpr int kL2CacheSize = 38;
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;
constexpr int kMaxSharedBytesPerBlockOptIn = 97;

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::open(const std::string& path) {
  const char* named = getenv("QUERN_LIBCUDA");
  const std::string name = !path.empty() ? path : named && *named ? named : "libcuda.so.1";
  auto driver = std::make_shared<Driver>();
  const Status status = driver->load(name);
  if (!status.ok()) return Status(ErrorCode::NO_DEVICE, "no usable CUDA driver: " + status.message());
  return std::shared_ptr<const Driver>(std::move(driver));
}

Status Driver::load(const std::string& name) {
  const Result<Library> library = Library::open(name);
  if (!library) return library.status();
  path_ = library->path();
  Status status;
#define QUERN_CUDA(field, symbol, parameters) \
  if (status.ok()) status = library->bind(symbol, api_.field);
#include "core/jit/driver_api.def"
#undef QUERN_CUDA
  if (!status.ok())
    return Status(status.code(), status.message() + "; CUDA 12.0 (driver 525) or later is needed");

  const int result = api_.init(0);
  if (result == kStubLibrary)
    return Status(ErrorCode::NO_DEVICE, path_ + " is the toolkit's stub, not a driver");
  if (result == kNoDevice) return Status(ErrorCode::NO_DEVICE, path_ + " finds no GPU");
  status = check(result, path_ + ": cuInit");
  if (status.ok()) status = check(api_.driver_version(&version_), "cuDriverGetVersion");
  if (status.ok()) status = check(api_.device_count(&device_count_), "cuDeviceGetCount");
  if (status.ok() && device_count_ == 0) return Status(ErrorCode::NO_DEVICE, path_ + " finds no GPU");
  return status;
}

Result<DeviceInfo> Driver::device(int ordinal) const {
  if (ordinal < 0 || ordinal >= device_count_)
    return Status(ErrorCode::NO_DEVICE, "there is no GPU " + std::to_string(ordinal) + ", only " +
                                            std::to_string(device_count_) + ", counted from 0");
  DeviceInfo info;
  info.ordinal = ordinal;
  int device = 0, l2_bytes = 0, shared_bytes = 0;
  size_t memory_bytes = 0;
  char name[256] = {};
  int result = api_.device_get(&device, ordinal);
  if (!result) result = api_.device_name(name, sizeof name - 1, device);
  if (!result) result = api_.device_memory(&memory_bytes, device);
  if (!result) result = api_.device_attribute(&info.major, kComputeMajor, device);
  if (!result) result = api_.device_attribute(&info.minor, kComputeMinor, device);
  if (!result) result = api_.device_attribute(&info.multiprocessors, kMultiprocessorCount, device);
  if (!result) result = api_.device_attribute(&l2_bytes, kL2CacheSize, device);
  if (!result) result = api_.device_attribute(&shared_bytes, kMaxSharedBytesPerBlockOptIn, device);
  const Status status = check(result, "asking about GPU " + std::to_string(ordinal));
  if (!status.ok()) return status;
  info.name = name;
  info.memory_bytes = memory_bytes;
  info.l2_bytes = static_cast<uint64_t>(l2_bytes);
  info.shared_bytes_per_block = static_cast<uint64_t>(shared_bytes);
  return info;
}

Status Driver::check(int result, const std::string& what) const {
  if (result == 0) return Status();
  const char *name = nullptr, *text = nullptr;
  api_.error_name(result, &name);
  api_.error_string(result, &text);
  return Status(result == kOutOfMemory ? ErrorCode::OUT_OF_MEMORY : ErrorCode::CUDA,
                what + ": " + (name ? name : "error " + std::to_string(result)) +
                    (text ? std::string(" (") + text + ")" : ""));
}

}  // namespace quern
