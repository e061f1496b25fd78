#include "core/jit/replay.h"

#include <algorithm>

namespace quern {

namespace {

constexpr int kCapturedAt = 3;  // the time that buffers come: many come once or twice
// Launches for which buffers that do not come are remembered when others are captured; a model's layers are fewer.
constexpr uint64_t kRemembered = 256;

}  // namespace

// Where the driver does not say, it refuses the launch, too.
bool Replays::is_capturing(void* stream) const {
  int status = 0;
  return driver_->api().stream_capturing(stream, &status) != 0 || status != 0;
}

Status Replays::launch(std::span<const uint64_t> addresses, void* stream, const Enqueue& enqueue) {
  if (is_capturing(stream)) return enqueue(stream);
  {
    const std::lock_guard lock(mutex_);
    if (Replay* const replay = recall(addresses, enqueue)) return replay->graph.launch(stream);
  }
  return enqueue(stream);
}

Replays::Seen& Replays::seen(const Hash128& buffers) {
  Set& set = seen_[buffers.low % seen_.size()];
  const auto at = std::find_if(set.begin(), set.end(), [&](const Seen& each) { return each.buffers == buffers; });
  if (at != set.end()) return *at;
  // At random: by turns, layers that are more than there is room for would drive each other out in every step.
  return set[hash128({reinterpret_cast<const char*>(&launches_), sizeof launches_}).low % set.size()] = {buffers, 0};
}

// Buffers that do not come again cost a hash and nothing that is allocated.
Replays::Replay* Replays::recall(std::span<const uint64_t> addresses, const Enqueue& enqueue) {
  ++launches_;
  const Hash128 key = hash128({reinterpret_cast<const char*>(addresses.data()), addresses.size_bytes()});
  if (const auto at = replays_.find(key); at != replays_.end()) {
    Replay& known = at->second;
    if (!std::equal(known.addresses.begin(), known.addresses.end(), addresses.begin(), addresses.end()))
      return nullptr;
    known.last_launch = launches_;
    return &known;
  }
  Seen& now = seen(key);
  if (++now.times != kCapturedAt) return nullptr;
  std::optional<CapturedGraph> graph = capture(enqueue);
  if (!graph) return nullptr;
  now = {};
  std::erase_if(replays_,
                [&](const auto& each) { return each.second.last_launch + kRemembered < launches_; });
  Replay made{{addresses.begin(), addresses.end()}, std::move(*graph), launches_};
  return &replays_.emplace(key, std::move(made)).first->second;
}

// Nothing where that fails: then the plan is launched as before, and what is wrong with it comes out there.
std::optional<CapturedGraph> Replays::capture(const Enqueue& enqueue) const {
  const RelaxedCapture relaxed(*driver_);
  const Result<Stream> stream = Stream::create(driver_);
  if (!stream) return {};
  Result<CapturedGraph> graph = stream->capture([&] { return enqueue(stream->handle()); });
  if (!graph) return {};
  return std::move(*graph);
}

}  // namespace quern
