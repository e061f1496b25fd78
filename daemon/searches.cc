#include "daemon/searches.h"

#include <algorithm>

#include "core/optimize/program.h"
#include "daemon/worker_answers.h"

namespace quern {

namespace {

constexpr size_t kMaxConsidered = 1 << 16;  // then the map starts anew; the store knows the rest
constexpr size_t kMaxStateBytes = 1 << 20;  // a longer state of a search is not worth its room
constexpr uint64_t kNotAgain = UINT64_MAX;  // while the daemon runs

// Whether the failure says something about the graph, and not only about this moment.
bool is_lasting(const Status& status) {
  switch (status.code()) {
    case ErrorCode::BUSY:
    case ErrorCode::TIMEOUT:
    case ErrorCode::IO:
    case ErrorCode::NO_COMPILER:
    case ErrorCode::CANCELLED:
    case ErrorCode::NOT_FOUND:
      return false;
    default:
      return true;
  }
}

}  // namespace

Searches::Searches(Hooks hooks)
    : hooks_(std::move(hooks)),
      jobs_({hooks_.workers,
             [this](const JobSpec& spec, JobResult result, std::function<void(JobResult)> done) {
               publish(spec, std::move(result), std::move(done));
             },
             [this](const Hash128& key, const std::string&) { return worker_died(key); },
             [this](const JobSpec& spec, const Asker& asker, const JobResult& result) {
               ended(spec, asker, result);
             },
             hooks_.now_ns,
             hooks_.max_queued,
             {},
             hooks_.elsewhere}) {}

bool Searches::lacks_programs(const Hash128& key) const { return !hooks_.store->programs(key).ok(); }

bool Searches::is_due(const Hash128& key, Wish wish) {
  if (wish == Wish::tuning && lacks_programs(key)) return true;
  if (considered_.size() >= kMaxConsidered) considered_.clear();
  const auto [seen, first] = considered_.try_emplace(key, kNotAgain);
  if (!first && (seen->second == kNotAgain || (wish == Wish::use && hooks_.now_ns() < seen->second)))
    return false;
  seen->second = kNotAgain;
  return true;
}

void Searches::timed_out(const Hash128& key, uint32_t timeouts) {
  const uint32_t doublings = std::clamp(timeouts, 1u, 2 * kMostDoublings + 1) - 1;
  considered_[key] = hooks_.now_ns() + (kRetryNs << doublings);
}

void Searches::consider(const Hash128& key, std::string_view material, Tier stands, const Asker& asker,
                        Wish wish, uint64_t least_ms) {
  if (!hooks_.store || hooks_.store->read_only() || draining_) return;
  if (hooks_.workers->compiler().kind == CompilerState::Kind::missing) return;
  if (!is_due(key, wish)) return;
  std::string state;
  uint32_t timeouts = 0;
  const bool again = wish == Wish::tuning && lacks_programs(key);
  if (const auto findings = hooks_.store->findings(key); findings.ok()) {
    // What was looked at to its end is not looked at again.
    if (findings->state.empty() && findings->timeouts == 0 && !again) return;
    state = findings->state;
    timeouts = findings->timeouts;
  } else if (stands == Tier::measured && !again) {
    return;
  }
  auto spec = job_for(wire::JobKind::optimize, key, material);
  if (!spec) return;
  spec->state = std::move(state);
  spec->for_programs = again;
  // A measuring here compiles what it needs itself, beside what it times.
  const std::vector<GpuState> gpus = hooks_.workers->gpus();
  const bool measured_here = std::any_of(gpus.begin(), gpus.end(), [&](const GpuState& gpu) {
    return gpu.kind == GpuState::Kind::ready && gpu.target == spec->target;
  });
  spec->keep = measured_here ? 1 : kKeep;
  const SearchLimits& limits = hooks_.limits;
  spec->budget_ms = std::max(limits.optimize_ms << std::min(timeouts, kMostDoublings), least_ms);
  spec->search_ms = spec->budget_ms * limits.search_ms / limits.optimize_ms;
  bool joined = false;
  const Status status = jobs_.ask(std::move(*spec), {asker.user, asker.client, asker.account, 0}, {}, joined);
  if (status.ok()) return;
  // When too many are queued, a later use of the plan asks again.
  considered_[key] = hooks_.now_ns() + kRetryNs;
  hooks_.log->debug("event=search_not_queued key=" + to_hex(key) + " reason=\"" + status.message() + "\"");
}

void Searches::forget(const Hash128& key) { considered_.erase(key); }

void Searches::drain() {
  draining_ = true;
  jobs_.dismiss_waiters(Status(ErrorCode::CANCELLED, "the daemon is about to exit"));
  jobs_.drop_background();
}

void Searches::publish(const JobSpec& spec, JobResult result, std::function<void(JobResult)> done) {
  if (result.findings.state.size() > kMaxStateBytes) result.findings.state.clear();
  if (result.timed_out) {
    result.findings.timeouts = hooks_.store->tuning(result.key).timeouts + 1;
    timed_out(result.key, result.findings.timeouts);
  }
  std::optional<std::string> programs;
  if (!result.programs.empty()) {
    auto joined = join_programs(*hooks_.store, spec, result.programs);
    if (result.status = joined.status(); !result.status.ok()) return done(std::move(result));
    programs = std::move(*joined);
  }
  auto shared = std::make_shared<JobResult>(std::move(result));
  const auto finish = [this, shared, done](const Status& status) {
    hooks_.post([=] {
      shared->stored = status;
      done(std::move(*shared));
    });
  };
  if (shared->plan.empty())
    return hooks_.store->put_findings(shared->key, shared->findings, std::move(programs), finish);
  shared->status = check_better_plan(*hooks_.store, spec, shared->plan, Tier::modelled);
  if (!shared->status.ok()) return done(std::move(*shared));
  PlanPut put;
  put.material = spec.material;
  put.tier = Tier::modelled;
  put.plan = shared->plan;
  put.findings = shared->findings;
  put.programs = std::move(programs);
  put.device = kModelDevice;
  put.program = Program{shared->findings.mugraph, shared->findings.schedule, 0, ""}.name();
  Timing timing;
  timing.device = kModelDevice;
  timing.program = *put.program;
  timing.cold_ns = static_cast<double>(shared->modelled_ns);
  put.timings.push_back(std::move(timing));
  hooks_.store->put(std::move(put), [this, shared, finish](Result<PutOutcome> outcome) {
    if (!outcome.ok()) return finish(outcome.status());
    hooks_.post([this, key = shared->key, outcome = outcome.value()] {
      if (!outcome.published) return;
      ++published_;
      hooks_.better(key, outcome.generation, outcome.tier);
    });
    shared->generation = outcome->generation;
    shared->tier = outcome->tier;
    shared->published = outcome->published;
    finish({});
  });
}

void Searches::ended(const JobSpec& spec, const Asker& asker, const JobResult& result) {
  deaths_.erase(result.key);
  remember(spec, result);
  hooks_.ended(spec, asker, result);
}

void Searches::settled(const JobSpec& spec, const JobResult& result, bool stored) {
  if (hooks_.settled) hooks_.settled(spec, result, stored);
}

void Searches::remember(const JobSpec& spec, const JobResult& result) {
  const std::string key = to_hex(result.key);
  if (result.elsewhere) {
    if (result.timed_out) timed_out(result.key, hooks_.store->tuning(result.key).timeouts);
    hooks_.log->info("event=search_from_fleet key=" + key +
                     " generation=" + std::to_string(result.generation));
    return settled(spec, result, false);
  }
  if (result.status.ok()) {
    settled(spec, result, result.stored.ok());
    hooks_.log->info("event=search_done key=" + key + " generation=" + std::to_string(result.generation) +
                     " queue_us=" + std::to_string(result.queue_ns / 1000) +
                     " search_us=" + std::to_string(result.search_ns / 1000) +
                     " emit_us=" + std::to_string(result.emit_ns / 1000) +
                     " compile_us=" + std::to_string(result.compile_ns / 1000) +
                     (result.findings.reason.empty() ? "" : " reason=\"" + result.findings.reason + "\"") +
                     (result.stored.ok() ? "" : " not_stored=\"" + result.stored.message() + "\""));
    return;
  }
  hooks_.log->warning("event=search_failed key=" + key + " error=" + error_name(result.status.code()) +
                      " reason=\"" + result.status.message() + "\"");
  Findings findings;
  if (result.status.code() == ErrorCode::TIMEOUT) {
    findings.timeouts = hooks_.store->tuning(result.key).timeouts + 1;
    timed_out(result.key, findings.timeouts);
  } else if (!is_lasting(result.status)) {
    considered_[result.key] = hooks_.now_ns() + kRetryNs;
    return settled(spec, result, false);
  }
  findings.reason = "the search failed: " + result.status.message();
  hooks_.store->put_findings(result.key, std::move(findings), {}, [this, spec, result](const Status& stored) {
    hooks_.post([this, spec, result, stored] { settled(spec, result, stored.ok()); });
  });
}

}  // namespace quern
