#include "core/jit/replay.h"

#include <algorithm>

namespace quern {

namespace {

constexpr int kCapturedAt = 3;  // the time that buffers come: many come once or twice
constexpr uint64_t kRemembered =
    256;  // launches for which buffers that do not come are remembered; a model's layers are fewer

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
    Buffers& buffers = recall(addresses);
    if (++buffers.times == kCapturedAt) buffers.graph = capture(enqueue);
    if (buffers.graph) return buffers.graph->launch(stream);
  }
  return enqueue(stream);
}

// Every so many launches those are forgotten that did not come since the last time.
Replays::Buffers& Replays::recall(std::span<const uint64_t> addresses) {
  if (++launches_ % kRemembered == 0)
    std::erase_if(known_,
                  [&](const auto& each) { return each.second.last_launch + kRemembered < launches_; });
  const std::string_view bytes(reinterpret_cast<const char*>(addresses.data()), addresses.size_bytes());
  Buffers& found = known_[hash128(bytes)];
  if (!std::equal(found.addresses.begin(), found.addresses.end(), addresses.begin(), addresses.end()))
    found = {{addresses.begin(), addresses.end()}, 0, 0, {}};
  found.last_launch = launches_;
  return found;
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
