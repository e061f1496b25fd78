// Buffers of one graph for timing: as many sets of inputs and outputs as keep a program from finding in the
// L2 cache what it read the last time.
#pragma once

#include <string>
#include <vector>

#include "core/base/plan.h"
#include "core/jit/device.h"

namespace quern {

class BufferSets {
 public:
  struct Set {
    std::vector<uint64_t> inputs, outputs;
  };
  // At most `most_bytes` in all; all sets have the same inputs. OUT_OF_MEMORY when two sets do not fit.
  static Result<BufferSets> make(const Device& device, const std::vector<TensorDesc>& inputs,
                                 const std::vector<TensorDesc>& outputs,
                                 const std::vector<std::string>& bytes, uint64_t most_bytes);

  const Set& operator[](size_t i) const { return sets_[i]; }
  size_t size() const { return sets_.size(); }
  uint64_t bytes() const { return memory_.size() + sweep_.size(); }
  // Whether `launches`, each with the next set, find nothing of the last time in L2.
  bool rotate_past_l2(size_t launches) const { return launches * set_bytes_ >= 4 * l2_bytes_; }
  // Replaces what L2 holds, in the order of the stream: for fewer launches than that.
  Status sweep_l2(void* stream) const { return sweep_.fill(0, stream); }

 private:
  // The same inputs for all sets, which lie `stride` bytes apart.
  Status fill(const Driver& driver, const std::vector<std::string>& bytes, uint64_t stride);

  std::vector<Set> sets_;
  DeviceMemory memory_, sweep_;
  uint64_t set_bytes_ = 0, l2_bytes_ = 0;
};

size_t buffer_bytes(const TensorDesc& desc);

}  // namespace quern
