#include "daemon/jobs.h"

#include <algorithm>
#include <tuple>

#include "daemon/setbacks.h"

namespace quern {

bool Jobs::Job::wanted() const {
  return std::any_of(waiters.begin(), waiters.end(),
                     [](const Waiter& waiter) { return !waiter.interest.expired(); });
}

bool Jobs::Job::before(const Job& other) const {
  return std::tuple(!wanted(), -int{priority}, order) <
         std::tuple(!other.wanted(), -int{other.priority}, other.order);
}

Status Jobs::ask(JobSpec spec, uint8_t priority, Waiter waiter, bool& joined) {
  const Hash128 key = spec.material.key();
  auto found = jobs_.find(key);
  joined = found != jobs_.end();
  if (!joined) {
    if (counts_.queued >= hooks_.max_queued)
      return Status(ErrorCode::BUSY,
                    std::to_string(counts_.queued) + " jobs are queued already; try again later");
    auto job = std::make_unique<Job>();
    job->spec = std::move(spec);
    job->order = next_order_++;
    job->asked_ns = hooks_.now_ns();
    found = jobs_.emplace(key, std::move(job)).first;
    ++counts_.queued;
  }
  Job& job = *found->second;
  job.priority = std::max(job.priority, priority);
  if (waiter.done) job.waiters.push_back(std::move(waiter));
  pump();
  return {};
}

bool Jobs::join(const Hash128& key, Waiter waiter) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return false;
  found->second->waiters.push_back(std::move(waiter));
  return true;
}

wire::JobState Jobs::state(const Hash128& key) const {
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return wire::JobState::none;
  return found->second->running ? wire::JobState::running : wire::JobState::queued;
}

Jobs::Counts Jobs::counts() const { return counts_; }

Jobs::Job* Jobs::next_queued(const std::set<Lane>& full) {
  Job* best = nullptr;
  for (auto& [key, job] : jobs_)
    if (!job->running && (!best || job->before(*best)) && !full.contains({job->spec.target, job->spec.gpu}))
      best = job.get();
  return best;
}

void Jobs::pump() {
  std::set<Lane> full;
  while (counts_.queued > 0) {
    Job* job = next_queued(full);
    if (!job) return;
    const Hash128 key = job->spec.material.key();
    const bool started = hooks_.workers->start(
        job->spec, [this, key](Result<wire::JobDone> done) { finish_compile(key, std::move(done)); },
        [this, key](const wire::JobProgress& progress) { progressed(key, progress); });
    if (!started) {
      // Only for a GPU does it depend on the job whether a worker is free.
      if (job->spec.kind != wire::JobKind::measure) return;
      full.insert({job->spec.target, job->spec.gpu});
      continue;
    }
    job->running = true;
    job->queue_ns = hooks_.now_ns() - job->asked_ns;
    --counts_.queued;
    ++counts_.running;
  }
}

void Jobs::progressed(const Hash128& key, const wire::JobProgress& progress) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return;
  if (hooks_.progress) hooks_.progress(found->second->spec, progress);
  for (const Waiter& waiter : found->second->waiters)
    if (waiter.progress && !waiter.interest.expired()) waiter.progress(progress);
}

// A worker that died may have died of something else, so one death is forgiven; the second on a key sets it
// aside.
bool Jobs::retry_after_death(Job& job, const Hash128& key, Status& status) {
  const uint32_t deaths = hooks_.worker_died(key, status.message());
  if (deaths >= Setbacks::kDeathsBeforeQuarantine) {
    status = Status(ErrorCode::QUARANTINED, "its worker died " + std::to_string(deaths) +
                                                " times, so this graph is set aside; " +
                                                "last: " + status.message());
    return false;
  }
  return retry(job);
}

bool Jobs::retry(Job& job) {
  if (job.retried) return false;
  job.retried = true;
  job.running = false;
  --counts_.running;
  ++counts_.queued;
  ++counts_.retried;
  return true;
}

void Jobs::finish_compile(const Hash128& key, Result<wire::JobDone> done) {
  Job& job = *jobs_.at(key);
  JobResult result;
  result.key = key;
  result.queue_ns = job.queue_ns;
  if (!done) {
    result.status = done.status();
    // What took longer than its own budget would do so again: its owner knows when to try with more.
    const bool late = result.status.code() == ErrorCode::TIMEOUT && job.spec.budget_ms > 0;
    const bool killed_by_others = result.status.code() == ErrorCode::CANCELLED;
    const bool again = killed_by_others                   ? retry(job)
                       : !late && is_death(result.status) ? retry_after_death(job, key, result.status)
                                                          : false;
    if (!again) finish(key, result);
    pump();
    return;
  }
  result.plan = std::move(done->plan);
  result.emit_ns = done->emit_ns;
  result.compile_ns = done->compile_ns;
  result.search_ns = done->search_ns;
  result.modelled_ns = done->modelled_ns;
  result.findings = {.reason = std::move(done->reason),
                     .report = std::move(done->report),
                     .mugraph = std::move(done->mugraph),
                     .schedule = std::move(done->schedule),
                     .cuda = std::move(done->cuda),
                     .state = std::move(done->state)};
  result.programs = std::move(done->programs);
  result.timed_out = done->timed_out != 0;
  result.timings = std::move(done->timings);
  result.device = std::move(done->device);
  // Until the plan is durable the job stays in the table, so that whoever asks now joins instead of starting
  // another.
  hooks_.publish(job.spec, std::move(result), [this, key](JobResult published) { finish(key, published); });
  pump();
}

void Jobs::finish(const Hash128& key, const JobResult& result) {
  const auto found = jobs_.find(key);
  // Out of the table first: a waiter may ask for the same key again.
  const std::unique_ptr<Job> job = std::move(found->second);
  jobs_.erase(found);
  if (job->running)
    --counts_.running;
  else
    --counts_.queued;
  ++(result.status.ok() ? counts_.done : counts_.failed);
  hooks_.ended(result);
  for (const Waiter& waiter : job->waiters)
    if (!waiter.interest.expired()) waiter.done(result);
}

void Jobs::drop_background() {
  std::erase_if(jobs_, [this](const auto& entry) {
    const bool drop = !entry.second->running && !entry.second->wanted();
    counts_.queued -= drop;
    return drop;
  });
}

void Jobs::dismiss_waiters(const Status& status) {
  std::vector<std::pair<Hash128, std::vector<Waiter>>> dismissed;
  for (auto& [key, job] : jobs_) dismissed.emplace_back(key, std::exchange(job->waiters, {}));
  for (const auto& [key, waiters] : dismissed) {
    JobResult result;
    result.key = key;
    result.status = status;
    for (const Waiter& waiter : waiters)
      if (!waiter.interest.expired()) waiter.done(result);
  }
}

void Jobs::fail_queued(const Status& status, const std::function<bool(const JobSpec&)>& which) {
  std::vector<Hash128> queued;
  for (const auto& [key, job] : jobs_)
    if (!job->running && (!which || which(job->spec))) queued.push_back(key);
  for (const Hash128& key : queued) {
    JobResult result;
    result.key = key;
    result.status = status;
    finish(key, result);
  }
}

}  // namespace quern
