// The CUDA driver, loaded with dlopen: its entry points, its errors as Status, and what it knows of the GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/jit/library.h"

namespace quern {

// From cuda.h, with the same layout: what cuLaunchKernelEx takes.
struct CuLaunchAttribute {
  static constexpr int kClusterDimension = 4, kProgrammaticStreamSerialization = 6;
  int id = 0;
  char pad[4] = {};
  union {
    char bytes[64] = {};
    uint32_t cluster[3];
    int programmatic_serialization;  // 1: allowed
  };
};
struct CuLaunchConfig {
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  void* stream;
  const CuLaunchAttribute* attributes;
  uint32_t attribute_count;
};
// What a kernel node of a graph launches (CUDA_KERNEL_NODE_PARAMS_v2).
struct CuKernelNode {
  void* function = nullptr;
  uint32_t grid[3] = {}, block[3] = {};
  uint32_t shared_bytes = 0;
  void** arguments = nullptr;
  void **extra = nullptr, *kernel = nullptr;
  void* context = nullptr;  // the current one
};
struct alignas(64) CuTensorMap {
  uint64_t words[16];
};
static_assert(sizeof(CuLaunchAttribute) == 72 && sizeof(CuLaunchConfig) == 56 && sizeof(CuKernelNode) == 72);

struct DriverApi {
#define QUERN_CUDA(field, symbol, parameters) int(*field) parameters = nullptr;
#include "core/jit/driver_api.def"
#undef QUERN_CUDA
};

struct DeviceInfo {
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  int multiprocessors = 0;
  uint64_t memory_bytes = 0, l2_bytes = 0, shared_bytes_per_block = 0;
};

// Safe to use from any thread. The library stays loaded.
class Driver {
 public:
  // Loads and initialises `path`, or $QUERN_LIBCUDA, or libcuda.so.1. NO_DEVICE with the reason when there is
  // no usable driver or no GPU.
  static Result<std::shared_ptr<const Driver>> open(const std::string& path = "");

  const DriverApi& api() const { return api_; }
  int version() const { return version_; }            // 13000 for CUDA 13.0
  const std::string& path() const { return path_; }   // the library's file
  int device_count() const { return device_count_; }  // at least 1
  Result<DeviceInfo> device(int ordinal) const;

  // What a CUresult means; `what` says what was being done. Out of memory has its own code, the rest is CUDA.
  Status check(int result, const std::string& what) const;

 private:
  Status load(const std::string& name);

  DriverApi api_;
  std::string path_;
  int version_ = 0, device_count_ = 0;
};

}  // namespace quern
