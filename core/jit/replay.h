// A plan that is launched on the same buffers again and again, as layers and steps of a model are: captured once as a CUDA
// graph, which the driver launches in less time than it takes for one kernel, however many there are.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/hash.h"
#include "core/jit/stream.h"

namespace quern {

// Of one plan in one context, which is current in all calls. Safe to use from any thread.
class Replays {
 public:
  using Enqueue = std::function<Status(void* stream)>;

  explicit Replays(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {}

  // `enqueue(stream)` puts on a stream what is launched with these addresses. It is called for `stream`, or what it put on another
  // before is launched there again. While the caller captures `stream` it is always called.
  Status launch(std::span<const uint64_t> addresses, void* stream, const Enqueue& enqueue);

 private:
  struct Buffers {
    std::vector<uint64_t> addresses;
    uint64_t times = 0;  // that they came
    uint64_t last_launch = 0;
    std::optional<CapturedGraph> graph;
  };
  bool is_capturing(void* stream) const;
  Buffers& recall(std::span<const uint64_t> addresses);
  std::optional<CapturedGraph> capture(const Enqueue& enqueue) const;

  const std::shared_ptr<const Driver> driver_;
  std::mutex mutex_;  // held while a graph is launched: the driver wants that
  std::unordered_map<Hash128, Buffers> known_;
  uint64_t launches_ = 0;
};

}  // namespace quern
