// What a caller launches: one cubin with an ordered list of kernel launches and a workspace. Made by codegen,
// stored by the cache, sent on the wire, run by the launch helper, the profiler and the emulator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/status.h"

namespace quern {

inline constexpr int kMaxRank = 8;

// How good a plan is; a higher tier is better. Stored and sent: never change a value.
enum class Tier : uint8_t { baseline = 1, modelled = 2, measured = 3 };
const char* tier_name(Tier tier);

// A tensor as the caller hands it over: strides are in elements, one per dimension, never negative.
struct TensorDesc {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  bool operator==(const TensorDesc&) const = default;

  int64_t element_count() const;
  // Elements from the first to the last addressed one, inclusive; 0 for an empty tensor. The buffer must hold
  // as many.
  int64_t span() const;
};
// Strides of a dense row-major tensor.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape);

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dim3&) const = default;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// One kernel parameter, in the order of the kernel's parameter list.
struct LaunchArg {
  enum class Kind : uint8_t {
    input = 1,       // device pointer of input `value`
    output = 2,      // device pointer of output `value`
    workspace = 3,   // workspace pointer + `value` bytes
    integer = 4,     // the 64-bit integer `value`
    tensor_map = 5,  // tensor map `value` of the plan, as the driver encodes it: 128 bytes by value
  };
  Kind kind = Kind::input;
  int64_t value = 0;
  bool operator==(const LaunchArg&) const = default;
};

// What the copy engine of sm_90 needs to know of a tensor in global memory to bring boxes of it into shared
// memory: what lies outside of the tensor arrives as zeros. Dimensions are outermost first, the last one has
// stride 1.
struct TensorMap {
  LaunchArg buffer;  // where the tensor begins: an input, an output or a part of the workspace
  DType dtype = DType::f32;
  std::vector<int64_t> shape, strides;  // in elements
  std::vector<int64_t> box;
  // Bytes of a row of the box in shared memory within which chunks of 16 bytes are permuted: 32, 64 or 128; 0
  // for none.
  uint32_t swizzle = 0;
  bool operator==(const TensorMap&) const = default;

  int64_t box_bytes() const;
};
// What the hardware can take (CUDA Driver API, "Tensor Map Object Management"); INVALID_ARGUMENT says what
// does not hold.
Status check_tensor_map(const TensorMap& map);
inline constexpr size_t kMostTensorMapDims = 5;
inline constexpr int64_t kTensorMapAlignment = 16;  // bytes, of the tensor and of all strides but the last

struct Launch {
  std::string kernel;  // unmangled name of an extern "C" __global__ function in the cubin
  Dim3 grid, block, cluster;
  uint32_t shared_bytes = 0;  // dynamic shared memory
  std::vector<LaunchArg> args;
  // It may begin before the launch in front of it has ended, and waits by itself before it touches what that
  // one writes (programmatic dependent launch, sm_90 and later). The first: before what is enqueued in front
  // of the plan has ended, and waits before it touches any buffer.
  bool overlaps = false;
  bool operator==(const Launch&) const = default;
};

// Launches of a plan, in their order.
struct LaunchRange {
  size_t first = 0, end = SIZE_MAX;
  bool operator==(const LaunchRange&) const = default;
};

// In the certificate of a plan one of whose launches could overlap what is in front of it, and does not: it was
// measured to take longer. Its code is the same. "first launch", "launch 1", ...
std::string waiting_fact(size_t launch);

// Launches run in order on one stream; each sees what those before it wrote. All buffers are distinct and at
// least 16-byte aligned; the workspace is 256-byte aligned and its contents are undefined at the start.
struct Plan {
  Tier tier = Tier::baseline;
  std::string target;  // "sm_90a"
  std::vector<TensorDesc> inputs, outputs;
  std::vector<Launch> launches;
  std::vector<TensorMap> tensor_maps;
  uint64_t workspace_bytes = 0;
  std::string certificate;  // what was checked about it: lines of "name: value" (facts.h)
  std::string cubin;        // an ELF image; empty only before compilation
  bool operator==(const Plan&) const = default;
};

// The versioned encoding that is stored and sent, and its checked inverse (CORRUPT says what does not hold).
std::string encode_plan(const Plan& plan);
Result<Plan> decode_plan(std::string_view bytes);

}  // namespace quern
