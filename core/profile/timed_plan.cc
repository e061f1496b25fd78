#include "core/profile/timed_plan.h"

#include <algorithm>

namespace quern {

namespace {

// Microseconds that the launches of one program in one round take together, as far as their number may
// follow.
constexpr double kHotRound = 10000, kColdRound = 20000;
constexpr double kFewestLaunches = 2, kMostHotLaunches = 40;

// The plan with these launches alone.
std::shared_ptr<const Plan> part_of(Plan plan, size_t first, size_t end) {
  std::vector<Launch>& all = plan.launches;
  all.erase(all.begin() + static_cast<ptrdiff_t>(end), all.end());
  all.erase(all.begin(), all.begin() + static_cast<ptrdiff_t>(first));
  return std::make_shared<const Plan>(std::move(plan));
}

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
  if (timed.first > 0 || end < launches) {
    out.part_ = std::make_unique<Launcher>(driver, part_of(*plan, timed.first, end));
    out.front_ = std::make_unique<Launcher>(driver, part_of(*plan, 0, timed.first));
  }
  out.launcher_ = std::make_unique<Launcher>(driver, std::move(plan));
  for (Launcher* each : {out.launcher_.get(), out.part_.get(), out.front_.get()})
    if (Status status = each ? each->load(clock.stream().handle()) : Status(); !status.ok()) return status;
  return out;
}

Status TimedPlan::prepare(const BufferSets& sets, const StreamClock& clock) {
  if (hot_.launches > 0) return {};
  return part_ ? prepare_part(sets, clock) : prepare_whole(sets, clock);
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
  const Stream& stream = clock.stream();
  size_t others = 1;
  while (others + 1 < sets.size() && !sets.rotate_past_l2(2 * others)) ++others;
  auto before = stream.capture([&] {
    Status status;
    for (size_t i = 1; i <= others && status.ok(); ++i) status = launch(*launcher_, sets[i], stream);
    return status.ok() && !front_->plan().launches.empty() ? launch(*front_, sets[0], stream) : status;
  });
  if (!before) return before.status();
  auto part = stream.capture([&] { return launch(*part_, sets[0], stream); });
  if (!part) return part.status();
  before_ = std::move(*before);
  cold_ = {*part, 1};
  hot_ = {std::move(*part), 1};
  return cold(sets, clock).status();
}

Status TimedPlan::launch(Launcher& launcher, const BufferSets::Set& set, const Stream& stream) const {
  return launcher.launch({set.inputs, set.outputs, workspace_.address()}, stream.handle());
}

Result<TimedPlan::Round> TimedPlan::capture(const BufferSets& sets, size_t launches, bool rotate,
                                            const Stream& stream) const {
  auto graph = stream.capture([&] {
    Status status;
    for (size_t i = 0; i < launches && status.ok(); ++i)
      status = launch(*launcher_, sets[rotate ? i % sets.size() : 0], stream);
    return status;
  });
  if (!graph) return graph.status();
  return Round{std::move(*graph), launches};
}

Result<double> TimedPlan::hot(const StreamClock& clock) const { return run(hot_, clock); }

Result<double> TimedPlan::cold(const BufferSets& sets, const StreamClock& clock) const {
  void* stream = clock.stream().handle();
  Status status;
  if (part_)
    status = before_.launch(stream);
  else if (!sets.rotate_past_l2(cold_.launches))
    status = sets.sweep_l2(stream);
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
