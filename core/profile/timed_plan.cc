#include "core/profile/timed_plan.h"

#include <algorithm>

namespace quern {

namespace {

// Microseconds that the launches of one program in one round take together, as far as their number may
// follow.
constexpr double kHotRound = 10000, kColdRound = 20000;
constexpr double kFewestLaunches = 2, kMostHotLaunches = 40;

// Whole plans that run before each part; what is so small that more would be needed is swept out of L2.
constexpr size_t kMostOthers = 16;

}  // namespace

Result<StreamClock> StreamClock::create(const std::shared_ptr<const Driver>& driver) {
  StreamClock clock;
  auto stream = Stream::create(driver);
  if (!stream) return stream.status();
  clock.stream_ = std::move(*stream);
  for (Event* event : {&clock.start_, &clock.stop_}) {
    auto created = Event::create(driver);
    if (!created) return created.status();
    *event = std::move(*created);
  }
  return clock;
}

Result<double> StreamClock::stop() const {
  Status status = stop_.record(stream_.handle());
  if (status.ok()) status = stream_.synchronize();
  if (!status.ok()) return status;
  return stop_.microseconds_since(start_);
}

Result<TimedPlan> TimedPlan::load(const std::shared_ptr<const Driver>& driver,
                                  std::shared_ptr<const Plan> plan, const LaunchRange& timed,
                                  const StreamClock& clock) {
  const size_t launches = plan->launches.size(), end = std::min(timed.end, launches);
  if (timed.first > 0 && timed.first >= end)
    return Status(ErrorCode::INVALID_ARGUMENT, "a plan of " + std::to_string(launches) +
                                                   " launches has no launch " + std::to_string(timed.first));
  TimedPlan out;
  out.timed_ = timed;
  out.launcher_ = std::make_unique<Launcher>(driver, std::move(plan));
  if (Status status = out.launcher_->load(clock.stream().handle()); !status.ok()) return status;
  return out;
}

Status TimedPlan::prepare(const BufferSets& sets, const StreamClock& clock) {
  if (hot_.launches > 0) return {};
  return is_part() ? prepare_part(sets, clock) : prepare_whole(sets, clock);
}

// As many launches as make a round.
Status TimedPlan::prepare_whole(const BufferSets& sets, const StreamClock& clock) {
  auto one = capture(sets, 1, false, clock.stream());
  if (!one) return one.status();
  Result<double> once = run(*one, clock);
  if (once) once = run(*one, clock);
  if (!once) return once.status();
  const double us = std::max(*once, 1.0);
  auto hot = capture(sets, static_cast<size_t>(std::clamp(kHotRound / us, kFewestLaunches, kMostHotLaunches)),
                     false, clock.stream());
  if (!hot) return hot.status();
  auto cold = capture(
      sets,
      static_cast<size_t>(std::clamp(kColdRound / us, kFewestLaunches, static_cast<double>(sets.size()))),
      true, clock.stream());
  if (!cold) return cold.status();
  for (const Round* round : {&*hot, &*cold})
    if (const Result<double> warm = run(*round, clock); !warm) return warm.status();
  hot_ = std::move(*hot);
  cold_ = std::move(*cold);
  return {};
}

// Whole plans with the other sets leave nothing of the first one in L2; then what is in front of the part computes what it
// reads.
Status TimedPlan::prepare_part(const BufferSets& sets, const StreamClock& clock) {
  void* stream = clock.stream().handle();
  while (others_ + 1 < std::min(sets.size(), kMostOthers) && !sets.rotate_past_l2(2 * others_)) ++others_;
  auto before = clock.stream().capture([&] {
    Status status;
    for (size_t i = 1; i <= others_ && status.ok(); ++i) status = launcher_->launch(buffers(sets[i]), stream);
    return status.ok() ? launcher_->launch_some({0, timed_.first}, buffers(sets[0]), stream) : status;
  });
  if (!before) return before.status();
  auto part =
      clock.stream().capture([&] { return launcher_->launch_some(timed_, buffers(sets[0]), stream); });
  if (!part) return part.status();
  before_ = std::move(*before);
  cold_ = {*part, 1};
  hot_ = {std::move(*part), 1};
  return cold(sets, clock).status();
}

Result<TimedPlan::Round> TimedPlan::capture(const BufferSets& sets, size_t launches, bool rotate,
                                            const Stream& stream) const {
  auto graph = stream.capture([&] {
    Status status;
    for (size_t i = 0; i < launches && status.ok(); ++i)
      status = launcher_->launch(buffers(sets[rotate ? i % sets.size() : 0]), stream.handle());
    return status;
  });
  if (!graph) return graph.status();
  return Round{std::move(*graph), launches};
}

Result<double> TimedPlan::hot(const StreamClock& clock) const { return run(hot_, clock); }

Result<double> TimedPlan::cold(const BufferSets& sets, const StreamClock& clock) const {
  void* stream = clock.stream().handle();
  const size_t launches = is_part() ? 2 * others_ : cold_.launches;
  Status status = sets.rotate_past_l2(launches) ? Status() : sets.sweep_l2(stream);
  if (status.ok() && is_part()) status = before_.launch(stream);
  if (!status.ok()) return status;
  return run(cold_, clock);
}

Result<double> TimedPlan::run(const Round& round, const StreamClock& clock) {
  Status status = clock.start();
  if (status.ok()) status = round.graph.launch(clock.stream().handle());
  if (!status.ok()) return status;
  const Result<double> us = clock.stop();
  if (!us) return us.status();
  return *us / static_cast<double>(round.launches);
}

}  // namespace quern
