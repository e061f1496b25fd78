// A plan on a GPU, whole or some of its launches, and the rounds that time it.
#pragma once

#include <memory>

#include "core/base/plan.h"
#include "core/jit/launcher.h"
#include "core/jit/stream.h"
#include "core/profile/bench.h"
#include "core/profile/buffer_sets.h"

namespace quern {

// A stream, and the time between two events on it.
class StreamClock {
 public:
  static Result<StreamClock> create(const std::shared_ptr<const Driver>& driver);
  const Stream& stream() const { return stream_; }
  Status start() const { return start_.record(stream_.handle()); }
  // Microseconds since start(), when all that was enqueued has ended.
  Result<double> stop() const;

 private:
  Stream stream_;
  Event start_, stop_;
};

class TimedPlan {
 public:
  // Loads the code. INVALID_ARGUMENT when the plan has no such launches.
  static Result<TimedPlan> load(const std::shared_ptr<const Driver>& driver, std::shared_ptr<const Plan> plan,
                                const LaunchRange& timed, const StreamClock& clock);

  const Plan& plan() const { return launcher_->plan(); }
  Launcher& launcher() { return *launcher_; }
  uint64_t workspace_bytes() const { return workspace_.size(); }
  bool has_workspace() const { return workspace_.size() > 0; }
  void take_workspace(DeviceMemory workspace) { workspace_ = std::move(workspace); }

  // Captures rounds, which then need no more of the CPU than a launch, and runs each once: the first time is not like the
  // others. Does nothing the second time. The workspace must be there, and the sets must outlive it.
  Status prepare(const BufferSets& sets, const StreamClock& clock);
  // Microseconds of one launch of the plan, or of its part, in a round whose buffers are in the L2 cache, and in one where
  // nothing of them is but what the launches in front of a part leave there.
  Result<double> hot(const StreamClock& clock) const;
  Result<double> cold(const BufferSets& sets, const StreamClock& clock) const;

 private:
  struct Round {
    CapturedGraph graph;
    size_t launches = 0;
  };
  Status prepare_whole(const BufferSets& sets, const StreamClock& clock);
  Status prepare_part(const BufferSets& sets, const StreamClock& clock);
  bool is_part() const { return timed_.first > 0 || timed_.end < plan().launches.size(); }
  LaunchBuffers buffers(const BufferSets::Set& set) const {
    return {set.inputs, set.outputs, workspace_.address()};
  }
  Result<Round> capture(const BufferSets& sets, size_t launches, bool rotate, const Stream& stream) const;
  static Result<double> run(const Round& round, const StreamClock& clock);

  std::unique_ptr<Launcher> launcher_;
  LaunchRange timed_;
  DeviceMemory workspace_;
  Round hot_, cold_;
  CapturedGraph before_;  // what runs in front of a part, and is not timed: plans with other sets first
  size_t others_ = 1;     // so many
};

}  // namespace quern
