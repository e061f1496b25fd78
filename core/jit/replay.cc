#include "core/jit/replay.h"

#include <algorithm>

namespace quern {

namespace {

constexpr int kCapturedAt = 3;      // the time that a stream comes: many plans are launched once or twice
constexpr size_t kMostStreams = 16;  // a graph each

Status enqueue_all(Replays::Work& work, void* stream) {
  Status status;
  for (size_t i = 0; i < work.kernels() && status.ok(); ++i) status = work.enqueue(i, stream);
  return status;
}

}  // namespace

// Where the driver does not say, it refuses the launch, too.
bool Replays::is_capturing(void* stream) const {
  int status = 0;
  return driver_->api().stream_capturing(stream, &status) != 0 || status != 0;
}

Status Replays::launch(Work& work, void* stream) {
  if (is_capturing(stream)) return enqueue_all(work, stream);
  {
    const std::lock_guard lock(mutex_);
    if (Replay* const replay = recall(work, stream)) return replay->graph.launch(stream);
  }
  return enqueue_all(work, stream);
}

Replays::OnStream& Replays::on(void* stream) {
  auto at = std::find_if(streams_.begin(), streams_.end(), [&](const OnStream& each) { return each.stream == stream; });
  if (at == streams_.end()) {
    if (streams_.size() == kMostStreams) streams_.pop_back();
    at = streams_.insert(streams_.begin(), OnStream{stream, 0, {}});
  }
  streams_.splice(streams_.begin(), streams_, at);
  return *at;
}

Replays::Replay* Replays::recall(Work& work, void* stream) {
  OnStream& here = on(stream);
  if (!here.replay) {
    if (here.times == kCapturedAt || ++here.times != kCapturedAt) return nullptr;
    here.replay = capture(work);
    return here.replay ? &*here.replay : nullptr;
  }
  Replay& replay = *here.replay;
  if (std::ranges::equal(replay.addresses, work.addresses())) return &replay;
  for (size_t i = 0; i < replay.nodes.size(); ++i)
    if (replay.nodes[i] && !work.update(i, replay.graph, replay.nodes[i]).ok()) {
      here.replay.reset();  // it has some of the new buffers
      return nullptr;
    }
  std::ranges::copy(work.addresses(), replay.addresses.begin());
  return &replay;
}

// Nothing where that fails: then the plan is launched as before, and what is wrong with it comes out there.
std::optional<Replays::Replay> Replays::capture(Work& work) const {
  const RelaxedCapture relaxed(*driver_);
  const Result<Stream> stream = Stream::create(driver_);
  if (!stream) return {};
  std::vector<void*> nodes;
  Result<CapturedGraph> graph = stream->capture([&] {
    void* before = nullptr;
    for (size_t i = 0; i < work.kernels(); ++i) {
      if (Status status = work.enqueue(i, stream->handle()); !status.ok()) return status;
      const Result<void*> last = stream->last_captured();
      if (!last) return last.status();
      nodes.push_back(*last == before ? nullptr : *last);
      before = *last;
    }
    return Status();
  });
  if (!graph) return {};
  return Replay{std::move(*graph), std::move(nodes), {work.addresses().begin(), work.addresses().end()}};
}

}  // namespace quern
