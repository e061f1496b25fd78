// GPU architectures: one row each in targets.def.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace quern {

inline constexpr int64_t kSystemSharedBytes = 1024;  // that CUDA has of each block's shared memory

struct Target {
  const char* name;  // as NVRTC takes it
  int major, minor;  // compute capability
  uint32_t shared_bytes_per_block;
  // What the cost model counts with.
  uint32_t shared_bytes_per_sm;
  int sms;
  int max_cluster;  // blocks; 1 = no clusters
  double dram_gbps, l2_gbps, l2_mib, mma_tflops, fma_tflops;
  bool tma;    // the copy engine, mbarriers with byte counts, programmatic dependent launch
  bool wgmma;  // tensor-core products by warp groups
  // What the model of schedules counts with instead of its own constants, for whoever calibrates it.
  const struct ModelConstants* model = nullptr;
};

std::span<const Target> all_targets();
// UNSUPPORTED with the list of known names when there is no such target.
Result<const Target*> find_target(std::string_view name);
// The best target for a device of this compute capability: the architecture-specific one ("sm_90a") where
// there is one.
Result<const Target*> target_for_device(int major, int minor);

}  // namespace quern
