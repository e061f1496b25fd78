#include "daemon/measures.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "core/optimize/program.h"
#include "daemon/worker_answers.h"

namespace quern {

namespace {

constexpr size_t kMaxConsidered = 1 << 16;  // then the map starts anew; the store knows the rest
constexpr size_t kMaxPutOff = 1024, kMostDue = 4;
constexpr size_t kMaxRefusal = 4096;  // bytes of a text that people read

double ns_of(uint64_t ps) { return static_cast<double>(ps) / 1e3; }

std::string seconds_text(uint64_t ns) { return std::to_string(ns / 1'000'000'000) + " s"; }

// What stood before may have been the model's choice: the baseline's time is said in any case.
std::string baseline_text(const JobResult& result) {
  for (const wire::TimingRow& row : result.timings) {
    if (row.program != Program().name()) continue;
    char text[64];
    std::snprintf(text, sizeof text, "; the baseline takes %.2f us", static_cast<double>(row.cold_ps) / 1e6);
    return row.cold_ps > 0 ? text
                           : "; the baseline is refused: " + row.refusal.substr(0, row.refusal.find('\n'));
  }
  return "";
}

}  // namespace

Measures::Measures(Hooks hooks)
    : hooks_(std::move(hooks)),
      jobs_({hooks_.workers,
             [this](const JobSpec& spec, JobResult result, std::function<void(JobResult)> done) {
               publish(spec, std::move(result), std::move(done));
             },
             [this](const Hash128& key, const std::string&) { return ++deaths_[key]; },
             [this](const JobSpec& spec, const Asker&, const JobResult& result) { ended(spec, result); },
             hooks_.now_ns, hooks_.max_queued,
             [this](const JobSpec& spec, const wire::JobProgress& progress) { progressed(spec, progress); },
             hooks_.elsewhere}),
      gpus_(hooks_.workers->gpus()) {}

bool Measures::usable() const {
  return hooks_.store && !hooks_.store->read_only() && !draining_ &&
         hooks_.settings.when != MeasureSettings::When::never;
}

const GpuState* Measures::gpu_for(const std::string& target, int number) const {
  for (const GpuState& gpu : gpus_)
    if (gpu.kind == GpuState::Kind::ready && gpu.target == target && (number < 0 || gpu.number == number))
      return &gpu;
  return nullptr;
}

// A GPU may yet be found.
bool Measures::still_looking() const {
  return std::any_of(gpus_.begin(), gpus_.end(),
                     [](const GpuState& gpu) { return gpu.kind == GpuState::Kind::starting; });
}

// All GPUs, or one.
std::string Measures::gpus_text(int number) const {
  std::string why;
  for (const GpuState& gpu : gpus_) {
    if (number >= 0 && gpu.number != number) continue;
    why += (why.empty() ? "" : "; ") + std::string("GPU ") + std::to_string(gpu.number) + ": " +
           (gpu.kind == GpuState::Kind::starting  ? "is being looked for"
            : gpu.kind == GpuState::Kind::missing ? gpu.reason
                                                  : gpu.device + " is of target " + gpu.target);
  }
  if (!why.empty()) return why;
  return number >= 0 ? "there is no GPU " + std::to_string(number) : "there is no GPU";
}

// Why gpu_for() finds none.
Status Measures::no_gpu(const std::string& target, int number) const {
  return Status(ErrorCode::NO_DEVICE, "nothing can be measured for " + target + ": " + gpus_text(number));
}

size_t Measures::measured_on(const std::string& device, const Hash128& key) const {
  const auto timings = hooks_.store->timings(key);
  if (!timings) return 0;
  return static_cast<size_t>(std::count_if(timings->begin(), timings->end(),
                                           [&](const Timing& timing) { return timing.device == device; }));
}

// False when there are no programs to measure.
bool Measures::fill_in(JobSpec& spec, const Hash128& key) const {
  auto programs = hooks_.store->programs(key);
  const auto stands = hooks_.store->peek(key);
  if (!programs || !stands) return false;
  spec.programs = std::move(*programs);
  const Tuning tuning = hooks_.store->tuning(key);
  spec.standing = tuning.generation == stands->generation ? tuning.program : Program().name();
  if (!list_standing(*hooks_.store, key, spec)) spec.standing = Program().name();
  spec.budget_ms = hooks_.settings.budget_ms;
  spec.any_load = hooks_.settings.when == MeasureSettings::When::always;
  return true;
}

void Measures::consider(const Hash128& key, std::string_view material, const Asker& asker,
                        bool new_programs) {
  if (!usable()) return;
  if (considered_.size() >= kMaxConsidered) considered_.clear();
  if (!considered_.insert(key).second && !new_programs) return;
  if (const auto late = put_off_.find(key); late != put_off_.end())
    late->second.again |= new_programs;
  else
    queue(key, material, asker, new_programs);
}

void Measures::queue(const Hash128& key, std::string_view material, const Asker& asker, bool again) {
  auto spec = job_for(wire::JobKind::measure, key, material);
  if (!spec) return;
  const GpuState* gpu = gpu_for(spec->target);
  if (!gpu && still_looking()) return put_off(key, spec->target, "the GPUs are being looked for", again);
  if (!gpu) return hooks_.workers->look_again();  // gpus_changed() forgets what was considered
  if (!again && measured_on(gpu->device, key) > 0) return;
  if (!fill_in(*spec, key)) return;
  spec->device = gpu->device;
  const std::string target = spec->target;
  bool joined = false;
  const Status status = jobs_.ask(std::move(*spec), {asker.user, asker.client, asker.account, 0}, {}, joined);
  if (!status.ok()) put_off(key, target, status.message(), again);
}

Status Measures::tune(const Hash128& key, uint64_t budget_ms, int gpu, Jobs::Waiter waiter) {
  if (hooks_.settings.when == MeasureSettings::When::never)
    return Status(ErrorCode::NO_DEVICE, "measuring is turned off (measure = never)");
  if (draining_) return Status(ErrorCode::BUSY, "the daemon is about to exit");
  const auto stands = hooks_.store->peek(key);
  if (!stands) return stands.status();
  auto spec = job_for(wire::JobKind::measure, key, stands->material);
  if (!spec) return Status(ErrorCode::NOT_FOUND, "the plan " + to_hex(key) + " is of an earlier version");
  if (!gpu_for(spec->target, gpu) && !still_looking()) {
    hooks_.workers->look_again();
    return no_gpu(spec->target, gpu);
  }
  if (!fill_in(*spec, key)) {
    const auto findings = hooks_.store->findings(key);
    return Status(ErrorCode::NOT_FOUND, "there are no programs to measure" +
                                            (findings.ok() ? ": " + findings->reason : std::string()));
  }
  if (budget_ms > 0) spec->budget_ms = budget_ms;
  spec->gpu = gpu;
  if (const GpuState* found = gpu_for(spec->target, gpu)) spec->device = found->device;
  spec->any_load = true;
  bool joined = false;
  const Asker asker = waiter.caller.asker;
  if (Status status = jobs_.ask(std::move(*spec), asker, std::move(waiter), joined); !status.ok())
    return status;
  put_off_.erase(key);
  considered_.insert(key);
  release();
  return {};
}

// ---- who waits
// ------------------------------------------------------------------------------------------------

bool Measures::join(const Hash128& key, Jobs::Waiter waiter) {
  if (jobs_.join(key, waiter)) return true;
  const auto late = put_off_.find(key);
  if (late == put_off_.end() || draining_) return false;
  if (!gpu_for(late->second.target) && !still_looking()) return false;
  if (const auto interest = waiter.caller.interest.lock())
    waiting_[interest.get()] = {key, std::move(waiter)};
  return true;
}

void Measures::leave(const void* interest) {
  waiting_.erase(interest);
  jobs_.leave(interest);
}

// To be called when something that was put off is tried or given up: whoever waits for it goes on to wait for
// its job, or learns that there will be none.
void Measures::release() {
  for (const auto& [interest, waits] : std::exchange(waiting_, {})) {
    if (waits.waiter.caller.interest.expired() || join(waits.key, waits.waiter)) continue;
    JobResult none;
    none.key = waits.key;
    none.status = Status(ErrorCode::CANCELLED, "it is not measured after all");
    waits.waiter.done(none);
  }
}

wire::JobState Measures::state(const Hash128& key) const {
  const wire::JobState state = jobs_.state(key);
  const auto late = put_off_.find(key);
  const bool soon = late != put_off_.end() && late->second.at_ns == kGpuKnown;
  return state == wire::JobState::none && soon ? wire::JobState::queued : state;
}

std::string Measures::why_late(const void* interest) const {
  const auto waits = waiting_.find(interest);
  const auto late = waits == waiting_.end() ? put_off_.end() : put_off_.find(waits->second.key);
  return late == put_off_.end() ? "" : put_off_text(late->second);
}

std::string Measures::put_off_text(const PutOff& late) const {
  const std::string text = "put off: " + late.why;
  if (late.at_ns >= kGpuKnown) return text;
  const uint64_t now = hooks_.now_ns();
  return text + "; tried again in " + seconds_text(late.at_ns > now ? late.at_ns - now : 0);
}

// ---- what comes back
// ------------------------------------------------------------------------------------------

// What a worker says is checked before it is kept.
Result<PlanPut> Measures::check(const JobSpec& spec, const JobResult& result) const {
  const auto no_good = [](const std::string& why) {
    return Status(ErrorCode::INTERNAL, "the worker's measurement is no good: " + why);
  };
  const auto names = measured_names(spec.programs, result.programs);
  if (!names) return no_good(names.status().message());
  PlanPut put;
  put.material = spec.material;
  put.tier = Tier::measured;
  put.plan = result.plan;
  put.device = result.device;
  if (put.device.empty() || put.device == kModelDevice) return no_good("it names no device");
  for (const wire::TimingRow& row : result.timings) {
    if (!names->contains(to_hex(row.program))) return no_good("it times a program that was not asked for");
    put.timings.push_back({put.device, row.program, ns_of(row.cold_ps), ns_of(row.hot_ps), row.samples,
                           static_cast<double>(row.error_ppb) / 1e9, row.refusal.substr(0, kMaxRefusal), 0});
  }
  if (put.plan.empty()) return put;
  if (Status status = check_better_plan(*hooks_.store, spec, put.plan, Tier::measured); !status.ok())
    return status;
  put.program = Program{result.findings.mugraph, result.findings.schedule, 0, ""}.name();
  if (!names->contains(to_hex(*put.program))) return no_good("its plan is of no program that was asked for");
  const auto own = std::find_if(put.timings.begin(), put.timings.end(),
                                [&](const Timing& timing) { return timing.program == *put.program; });
  if (own == put.timings.end() || !(own->cold_ns > 0) || !own->refusal.empty())
    return no_good("its plan was not timed, or is refused");
  return put;
}

// What the search found stays known; what the plan was made from changes with it, and why it stands.
Findings Measures::join_findings(const JobResult& result) const {
  Findings joined;
  if (auto known = hooks_.store->findings(result.key); known.ok()) joined = std::move(*known);
  if (joined.mugraph != result.findings.mugraph || joined.schedule != result.findings.schedule)
    joined.cuda.clear();
  if (!result.findings.cuda.empty()) joined.cuda = result.findings.cuda;
  joined.mugraph = result.findings.mugraph;
  joined.schedule = result.findings.schedule;
  joined.reason = joined.mugraph.empty() ? result.findings.reason : "";
  const std::string head = "measured on " + result.device + ": ";
  if (const size_t old = joined.report.find(head); old != std::string::npos)
    joined.report.erase(old, joined.report.find('\n', old) + 1 - old);
  joined.report += head + result.findings.reason + baseline_text(result) + "\n";
  return joined;
}

void Measures::put(PlanPut put, std::function<void(const Result<PutOutcome>&)> done) {
  hooks_.store->put(std::move(put), [this, done = std::move(done)](Result<PutOutcome> outcome) {
    hooks_.post([this, done, outcome = std::move(outcome)] {
      if (outcome.ok() && outcome.value().published) {
        ++published_;
        hooks_.better(outcome.value().key, outcome.value().generation, outcome.value().tier);
      }
      done(outcome);
    });
  });
}

// A better plan is published as soon as it is known.
void Measures::progressed(const JobSpec& spec, const wire::JobProgress& progress) {
  if (progress.plan.empty()) return;
  JobResult result;
  result.key = spec.material.key();
  result.plan = progress.plan;
  result.device = progress.device;
  wire::TimingRow timing;
  timing.program = progress.program;
  timing.cold_ps = progress.best_ps;
  timing.samples = 1;
  result.timings.push_back(timing);
  const auto programs = decode_programs(spec.programs);
  for (const Program& program : programs.ok() ? *programs : std::vector<Program>())
    if (program.name() == progress.program) {
      result.findings.mugraph = program.mugraph;
      result.findings.schedule = program.schedule;
    }
  result.findings.cuda = progress.cuda;
  auto put = check(spec, result);
  if (!put) {
    hooks_.log->warning("event=early_plan_refused key=" + to_hex(result.key) + " reason=\"" +
                        put.status().message() + "\"");
    return;
  }
  result.findings.reason = "the first that is faster than what stood";
  put->findings = join_findings(result);
  this->put(std::move(*put), [](const Result<PutOutcome>&) {});
}

void Measures::publish(const JobSpec& spec, JobResult result, std::function<void(JobResult)> done) {
  auto checked = check(spec, result);
  if (result.status = checked.status(); !result.status.ok()) return done(std::move(result));
  if (!result.programs.empty()) {
    auto joined = join_programs(*hooks_.store, spec, result.programs);
    if (result.status = joined.status(); !result.status.ok()) return done(std::move(result));
    checked->programs = std::move(*joined);
  }
  auto shared = std::make_shared<JobResult>(std::move(result));
  if (shared->plan.empty())
    return hooks_.store->put_timings(shared->key, checked->timings, [this, shared, done](Status status) {
      hooks_.post([=] {
        shared->stored = status;
        done(std::move(*shared));
      });
    });
  checked->findings = join_findings(*shared);
  put(std::move(*checked), [shared, done](const Result<PutOutcome>& outcome) {
    shared->stored = outcome.status();
    if (outcome.ok()) {
      shared->generation = outcome.value().generation;
      shared->tier = outcome.value().tier;
    }
    done(std::move(*shared));
  });
}

void Measures::ended(const JobSpec& spec, const JobResult& result) {
  const std::string key = to_hex(result.key);
  if (hooks_.settled) hooks_.settled(spec, result);
  if (result.status.ok()) {
    deaths_.erase(result.key);
    put_off_.erase(result.key);
    hooks_.log->info((result.elsewhere ? "event=measure_from_fleet key=" : "event=measure_done key=") + key +
                     " generation=" + std::to_string(result.generation) + " device=\"" + result.device +
                     "\" reason=\"" + result.findings.reason + "\"" +
                     (result.stored.ok() ? "" : " not_stored=\"" + result.stored.message() + "\""));
    return;
  }
  hooks_.log->warning("event=measure_failed key=" + key + " error=" + error_name(result.status.code()) +
                      " reason=\"" + result.status.message() + "\"");
  switch (result.status.code()) {
    case ErrorCode::BUSY:
    case ErrorCode::IO:
    case ErrorCode::NO_DEVICE:
    case ErrorCode::NO_COMPILER:
    case ErrorCode::OUT_OF_MEMORY:
    case ErrorCode::CANCELLED:
      return put_off(result.key, spec.target, result.status.message());
    case ErrorCode::NOT_FOUND:
      put_off_.erase(result.key);
      return;
    case ErrorCode::TIMEOUT:
      if (++deaths_[result.key] < kDeathsBeforeGivingUp)
        return put_off(result.key, spec.target, result.status.message());
      break;
    default:
      break;
  }
  give_up(result.key, result.status.message());
}

void Measures::put_off(const Hash128& key, const std::string& target, const std::string& why, bool again) {
  if (put_off_.size() >= kMaxPutOff && !put_off_.contains(key)) {
    considered_.erase(key);  // a later use of the plan asks again
    return;
  }
  PutOff& next = put_off_[key];
  next.target = target;
  next.why = why;
  next.again = again;
  next.at_ns = kGpuKnown;
  if (!gpu_for(target) && still_looking()) return;
  next.at_ns = hooks_.now_ns() + (kRetryNs << std::min(next.times, kMostDoublings));
  ++next.times;
}

// Not on this GPU again, until somebody asks for it; what stands is as right as it ever was.
void Measures::give_up(const Hash128& key, const std::string& why) {
  deaths_.erase(key);
  put_off_.erase(key);
  const auto stands = hooks_.store->peek(key);
  if (!stands) return;
  const auto spec = job_for(wire::JobKind::measure, key, stands->material);
  const GpuState* gpu = spec ? gpu_for(spec->target) : nullptr;
  if (!gpu) return;
  Timing timing;
  timing.device = gpu->device;
  timing.program = Program().name();
  timing.refusal = ("measuring was given up: " + why).substr(0, kMaxRefusal);
  hooks_.store->put_timings(key, {std::move(timing)});
}

// ---- time and GPUs
// --------------------------------------------------------------------------------------------

std::string Measures::explain(const Hash128& key) const {
  if (hooks_.settings.when == MeasureSettings::When::never) return "turned off (measure = never)";
  if (const wire::JobState now = jobs_.state(key); now != wire::JobState::none)
    return std::string("under way: its job is ") + wire::job_state_name(now);
  if (!hooks_.store) return "";
  if (const auto late = put_off_.find(key); late != put_off_.end() && late->second.at_ns != kUnderWay)
    return put_off_text(late->second);
  const auto stands = hooks_.store->peek(key);
  const auto spec = stands.ok() ? job_for(wire::JobKind::measure, key, stands->material) : std::nullopt;
  if (!spec) return "";
  const GpuState* gpu = gpu_for(spec->target);
  if (!gpu) return no_gpu(spec->target, -1).message();
  const auto timings = hooks_.store->timings(key);
  size_t timed = 0, refused = 0;
  std::string baseline;
  for (const Timing& timing : timings.ok() ? *timings : std::vector<Timing>()) {
    if (timing.device != gpu->device) continue;
    ++(timing.refusal.empty() ? timed : refused);
    if (timing.program == Program().name()) baseline = timing.refusal;
  }
  if (timed == 0 && !baseline.empty()) return baseline;
  if (timed + refused > 0)
    return "done on " + gpu->device + ": " + std::to_string(timed) + " programs timed, " +
           std::to_string(refused) + " refused";
  if (!hooks_.store->programs(key).ok()) return "there are no programs to measure";
  return "not yet on " + gpu->device + "; the next use of the plan starts it";
}

void Measures::forget(const Hash128& key) {
  considered_.erase(key);
  put_off_.erase(key);
  deaths_.erase(key);
  release();
}

void Measures::gpus_changed() {
  gpus_ = hooks_.workers->gpus();
  considered_.clear();
  for (const GpuState& gpu : gpus_)
    hooks_.log->info("event=gpu number=" + std::to_string(gpu.number) +
                     (gpu.kind == GpuState::Kind::ready
                          ? " device=\"" + gpu.device + "\" target=" + gpu.target
                          : " reason=\"" + gpu.reason + "\""));
  jobs_.fail_queued(
      Status(ErrorCode::NO_DEVICE, "there is no GPU for it: " + gpus_text()),
      [this](const JobSpec& spec) { return !gpu_for(spec.target, spec.gpu) && !still_looking(); });
  jobs_.pump();
  for (auto& [key, late] : put_off_)
    if (late.at_ns == kGpuKnown) late.at_ns = hooks_.now_ns();
  release();
}

std::optional<uint64_t> Measures::next_ns() const {
  std::optional<uint64_t> next;
  if (draining_) return next;
  for (const auto& [key, late] : put_off_)
    if (late.at_ns < kGpuKnown) next = std::min(next.value_or(UINT64_MAX), late.at_ns);
  return next;
}

void Measures::expire() {
  if (draining_) return;
  const uint64_t now = hooks_.now_ns();
  std::vector<Hash128> due;
  for (const auto& [key, late] : put_off_)
    if (late.at_ns <= now && due.size() < kMostDue) due.push_back(key);
  for (const Hash128& key : due) {
    PutOff& late = put_off_[key];
    late.at_ns = kUnderWay;  // and it stays there, so that the time to the next try goes on growing
    if (const auto stands = hooks_.store->peek(key); stands.ok())
      queue(key, stands->material, {}, late.again);
    if (late.at_ns != kUnderWay || jobs_.state(key) != wire::JobState::none) continue;
    put_off_.erase(key);
    considered_.erase(key);
  }
  if (!due.empty()) release();
}

void Measures::drain() {
  draining_ = true;
  jobs_.dismiss_waiters(Status(ErrorCode::CANCELLED, "the daemon is about to exit"));
  jobs_.drop_background();
  release();
}

}  // namespace quern
