// Whether a GPU is used by somebody else, as NVML says; and which driver runs it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/jit/driver.h"

namespace quern {

class GpuMonitor {
 public:
  // Of the GPU that `driver` calls `ordinal`. Without NVML nothing is known; never fails.
  GpuMonitor(const Driver& driver, int ordinal);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;

  // "580.159.04"; empty: unknown.
  const std::string& driver_version() const { return version_; }
  // The largest share of time that one process used its SMs during the next `milliseconds`, in which the
  // caller gives it nothing to do; nothing if that is unknown.
  std::optional<double> use_by_others(int milliseconds) const;

 private:
  struct Nvml;
  std::unique_ptr<Nvml> nvml_;
  void* device_ = nullptr;
  std::string version_;
};

}  // namespace quern
