#include "core/jit/spread.h"

#include <algorithm>

#include "core/base/integers.h"

namespace quern {

namespace {

// From cuda.h.
constexpr int kMultiprocessorCount = 16;           // CUdevice_attribute
constexpr int kSharedBytesPerMultiprocessor = 81;  // CUdevice_attribute

constexpr uint32_t kLarge = 8;  // blocks of this part of an SM's shared memory

// The least that blocks ask for of which an SM takes `share`, and no more.
uint32_t bytes_of_share(uint64_t shared_bytes, uint64_t share) {
  constexpr uint64_t kReserved = 1024, kGranule = 128;  // of shared memory, for each block
  const uint64_t least =
      shared_bytes / (share + 1) / kGranule * kGranule + kGranule;  // one more does not fit
  return static_cast<uint32_t>(least - std::min(least, kReserved));
}

// Whether all clusters of the launch run at once where its blocks ask for so much. Not if the driver cannot say.
bool all_clusters_fit(const Driver& driver, const Launch& launch, void* function, uint32_t bytes) {
  const CuLaunchAttribute cluster = cluster_attribute(launch);
  const CuLaunchConfig config = {{launch.grid.x, launch.grid.y, launch.grid.z},
                                 {launch.block.x, launch.block.y, launch.block.z},
                                 bytes,
                                 nullptr,
                                 &cluster,
                                 1};
  int clusters = 0;
  return driver.api().function_set(function, kMaxDynamicSharedBytes, static_cast<int>(bytes)) == 0 &&
         driver.api().active_clusters(&clusters, function, &config) == 0 && clusters > 0 &&
         static_cast<uint64_t>(clusters) >= launch.grid.count() / launch.cluster.count();
}

}  // namespace

CuLaunchAttribute cluster_attribute(const Launch& launch) {
  CuLaunchAttribute out;
  out.id = CuLaunchAttribute::kClusterDimension;
  out.cluster[0] = launch.cluster.x;
  out.cluster[1] = launch.cluster.y;
  out.cluster[2] = launch.cluster.z;
  return out;
}

Result<Multiprocessors> multiprocessors(const Driver& driver) {
  Multiprocessors out;
  int device = 0;
  if (const int result = driver.api().context_device(&device)) return driver.check(result, "cuCtxGetDevice");
  int result = driver.api().device_attribute(&out.count, kMultiprocessorCount, device);
  if (!result)
    result = driver.api().device_attribute(&out.shared_bytes, kSharedBytesPerMultiprocessor, device);
  if (result) return driver.check(result, "cuDeviceGetAttribute");
  return out;
}

uint32_t evenly_spread_bytes(const Driver& driver, const Multiprocessors& sms, const Launch& launch,
                             void* function) {
  const auto all = static_cast<uint64_t>(sms.shared_bytes);
  if (!launch.overlaps || launch.shared_bytes < all / kLarge) return launch.shared_bytes;
  const auto blocks = static_cast<int64_t>(std::max<uint64_t>(1, launch.grid.count()));
  auto share = static_cast<uint64_t>(divide_up(blocks, std::max(1, sms.count)));
  uint32_t bytes = bytes_of_share(all, share);
  if (launch.cluster.count() > 1)
    while (bytes > launch.shared_bytes && !all_clusters_fit(driver, launch, function, bytes))
      bytes = bytes_of_share(all, ++share);
  return std::max(launch.shared_bytes, bytes);
}

}  // namespace quern
