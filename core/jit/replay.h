// A plan that is launched on the same buffers again and again, as layers and steps of a model are: captured once as a CUDA
// graph, which the driver launches in less time than it takes for one kernel, however many there are.
#pragma once

#include <array>
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
  struct Seen {
    Hash128 buffers{};
    int times = 0;
  };
  struct Replay {
    std::vector<uint64_t> addresses;
    CapturedGraph graph;
    uint64_t last_launch = 0;
  };
  bool is_capturing(void* stream) const;
  Seen& seen(const Hash128& buffers);
  // Nothing where these buffers did not come often enough, or cannot be captured.
  Replay* recall(std::span<const uint64_t> addresses, const Enqueue& enqueue);
  std::optional<CapturedGraph> capture(const Enqueue& enqueue) const;

  const std::shared_ptr<const Driver> driver_;
  std::mutex mutex_;  // held while a graph is launched: the driver wants that
  using Set = std::array<Seen, 4>;
  std::array<Set, 64> seen_{};  // by their hash; others of the same set take their place
  std::unordered_map<Hash128, Replay> replays_;
  uint64_t launches_ = 0;
};

}  // namespace quern
