// What outputs should be, on the GPU where they are made (reference_program.h): for all elements.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/jit/device.h"
#include "core/jit/launcher.h"
#include "core/jit/stream.h"
#include "core/profile/cases.h"
#include "core/profile/reference_program.h"

namespace quern {

class DeviceReference {
 public:
  struct Options {
    size_t cases = 1;
    bool tf32 = false;        // programs that compute in tf32 may come
    uint64_t most_bytes = 0;  // of device memory
  };
  // `outputs`: those of the graph. OUT_OF_MEMORY when not even one case fits.
  static Result<std::unique_ptr<DeviceReference>> make(const Device& device, const ReferenceProgram& program,
                                                       std::vector<TensorDesc> outputs,
                                                       const Options& options);

  // Bytes that it keeps.
  uint64_t bytes() const { return bytes_; }
  // Whether what was computed for a case stays; else it must be computed again before every judge().
  bool keeps() const { return slots_.size() > 1; }
  // Computes it from the inputs at these addresses; waits for it.
  Status compute(size_t number, bool tf32, bool special, std::vector<uint64_t> inputs, const Stream& stream);
  // Outputs at these addresses, beside what was computed for the case.
  Result<Judged> judge(size_t number, bool tf32, const std::vector<uint64_t>& outputs, const Stream& stream);

 private:
  using Slot = std::vector<DeviceMemory>;  // WantedElements of each output

  const Slot& slot(size_t number, bool tf32) const {
    return slots_[keeps() ? number * kinds_ + (tf32 ? kinds_ - 1 : 0) : 0];
  }
  Result<WantedElement> wanted(const Slot& slot, size_t output, int64_t element) const;

  const Device* device_ = nullptr;
  std::vector<TensorDesc> outputs_;
  std::shared_ptr<const Plan> evaluate_plan_, compare_plan_;
  std::unique_ptr<Launcher> evaluate_, compare_;
  size_t kinds_ = 1;
  std::vector<Slot> slots_;
  std::vector<DeviceMemory> parts_;
  DeviceMemory workspace_, flags_;
  uint64_t bytes_ = 0;
};

}  // namespace quern
