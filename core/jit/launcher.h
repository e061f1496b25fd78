// Launches one plan on any stream of any context: the client's launch helper, the worker's checks and the
// tools.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <vector>

#include "core/base/plan.h"
#include "core/jit/driver.h"
#include "core/jit/replay.h"
#include "core/jit/tensor_maps.h"

namespace quern {

// Device addresses in the order of the plan's inputs and outputs; 0 is allowed for an empty tensor, and for
// the workspace of a plan that needs none.
struct LaunchBuffers {
  std::span<const uint64_t> inputs, outputs;
  uint64_t workspace = 0;
};

// Safe to use from any thread. Modules are loaded once a context, on the first launch or load() there, and
// unloaded with the launcher: it must outlive the work it launched and every CUDA graph that captured it.
class Launcher {
 public:
  Launcher(std::shared_ptr<const Driver> driver, std::shared_ptr<const Plan> plan);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Loads the plan's code into the context of `stream` (a CUstream; a default stream means the current
  // context), unless it is there. Tens of microseconds the first time, and a few more calls of the driver for clusters that overlap. launch() does it by itself.
  Status load(void* stream);
  // Enqueues the plan's launches in order and returns. Once loaded it does not wait, and in a capture it
  // allocates no GPU memory, so that it may be captured into a CUDA graph. The third call on a stream makes a
  // CUDA graph of the plan (replay.h), in tens of microseconds; from then on that is launched. INVALID_ARGUMENT names the buffer that is missing or misaligned; the driver's errors are CUDA.
  Status launch(const LaunchBuffers& buffers, void* stream);
  // Some of the plan's launches alone, one by one; what they read is for the caller to put there.
  Status launch_some(const LaunchRange& range, const LaunchBuffers& buffers, void* stream);

  const Plan& plan() const { return *plan_; }

 private:
  struct Function {
    void* handle = nullptr;
    uint32_t shared_bytes = 0;  // what a launch asks for on this device
  };
  struct Loaded {
    unsigned long long id = 0;  // of the context
    void* context = nullptr;
    void* module = nullptr;
    std::vector<Function> functions;  // one per launch of the plan
    std::unique_ptr<Replays> replays;
  };
  // What a launch asks of the driver whatever the buffers are.
  struct Prepared {
    explicit Prepared(const Launch& launch);
    std::array<CuLaunchAttribute, 2> attributes;
    uint32_t attribute_count = 0, map_count = 0;
  };
  Status check_buffers(const LaunchBuffers& buffers) const;
  Result<const Loaded*> loaded_in(void* context);
  Status load_module(Loaded* loaded) const;
  Status prefer_shared_memory(const Launch& launch, void* function) const;
  Status allow_shared_memory(const Loaded& loaded, size_t index) const;
  class Call;
  template <class Use>
  Status with_call(const LaunchBuffers& buffers, void* stream, const Use& use);
  template <class Use>
  Status with_arguments(size_t index, const LaunchBuffers& buffers, const Use& use);

  const std::shared_ptr<const Driver> driver_;
  const std::shared_ptr<const Plan> plan_;
  std::vector<Prepared> prepared_;  // one per launch of the plan
  const bool overlaps_;             // some launch is a programmatic dependent of the one in front of it
  TensorMaps tensor_maps_;
  std::atomic<const Loaded*> last_ = nullptr;  // of loaded_
  std::shared_mutex mutex_;
  // By the context's id, which is never reused; its address may be. Entries are never moved or removed.
  std::map<unsigned long long, Loaded> loaded_;
};

}  // namespace quern
