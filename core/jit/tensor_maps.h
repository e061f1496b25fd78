// Tensor maps of a plan as the driver encodes them, for the buffers of a launch. Encoding is work of the CPU
// alone, so it may happen during a capture; what was encoded for a few recent addresses is kept, so that
// launches on the same buffers do not pay for it.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/plan.h"
#include "core/jit/driver.h"

namespace quern {

// Safe to use from any thread.
class TensorMaps {
 public:
  TensorMaps(std::shared_ptr<const Driver> driver, const std::vector<TensorMap>& maps);

  // Map `index` over a tensor that begins at `address`, of the current context.
  Status encode(size_t index, uint64_t address, CuTensorMap& out);

 private:
  static constexpr size_t kKept = 8;
  struct Kept {
    std::array<uint64_t, kKept> addresses{};  // 0: none
    std::array<CuTensorMap, kKept> encoded;
    size_t next = 0;
  };

  const std::shared_ptr<const Driver> driver_;
  const std::vector<TensorMap>& maps_;
  std::mutex mutex_;
  std::vector<Kept> kept_;  // one for each map
};

}  // namespace quern
