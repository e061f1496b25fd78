// A plan that is launched again and again on one stream, as layers and steps of a model are: captured once as a CUDA graph,
// which the driver launches in less time than it takes for one kernel, however many there are. Other buffers change what its
// kernels are given.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/jit/stream.h"

namespace quern {

// Of one plan in one context, which is current in all calls. Safe to use from any thread.
class Replays {
 public:
  // A plan's kernels with the buffers of one call.
  class Work {
   public:
    explicit Work(std::span<const uint64_t> addresses) : addresses_(addresses) {}
    virtual ~Work() = default;
    std::span<const uint64_t> addresses() const { return addresses_; }
    virtual size_t kernels() const = 0;
    virtual Status enqueue(size_t kernel, void* stream) = 0;
    virtual Status update(size_t kernel, const CapturedGraph& graph, void* node) = 0;

   private:
    const std::span<const uint64_t> addresses_;
  };

  explicit Replays(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {}

  // Puts the kernels on the stream; one by one while the caller captures it, so that they become the caller's graph's.
  Status launch(Work& work, void* stream);

 private:
  struct Replay {
    CapturedGraph graph;
    std::vector<void*> nodes;  // one per kernel; null where nothing was launched
    std::vector<uint64_t> addresses;
  };
  // A graph is launched on one stream alone: the driver lets none run beside itself.
  struct OnStream {
    void* stream = nullptr;
    int times = 0;
    std::optional<Replay> replay;
  };
  bool is_capturing(void* stream) const;
  OnStream& on(void* stream);
  // Nothing where the stream did not come often enough, or the driver makes no graph of what it is given.
  Replay* recall(Work& work, void* stream);
  std::optional<Replay> capture(Work& work) const;

  const std::shared_ptr<const Driver> driver_;
  std::mutex mutex_;            // held while a graph is launched: the driver wants that
  std::list<OnStream> streams_;  // the last one first
};

}  // namespace quern
