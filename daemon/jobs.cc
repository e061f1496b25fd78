#include "daemon/jobs.h"

#include <utility>

#include "daemon/setbacks.h"

namespace quern {

namespace {

// More than workers have begun: none waits for a round trip.
constexpr size_t kClaimsAhead = 2;

}  // namespace

Status Jobs::may_queue(const JobSpec& spec, const Asker& asker, Charge& charge) const {
  const auto asked = asked_.find({asker.user, asker.client});
  if (const size_t queued = asked == asked_.end() ? 0 : asked->second.size(); queued >= hooks_.max_queued)
    return Status(ErrorCode::BUSY,
                  std::to_string(queued) + " jobs of this client are queued already; try again later");
  if (!asker.account) return {};
  charge = Charge(asker.account, spec.bytes());
  if (charge.ok()) return {};
  return Status(ErrorCode::BUSY,
                "the jobs and requests of this client, or of all, take more memory than they may; "
                "try again later");
}

Status Jobs::ask(JobSpec spec, const Asker& asker, Waiter waiter, bool& joined) {
  const Hash128 key = spec.material.key();
  auto found = jobs_.find(key);
  joined = found != jobs_.end();
  if (!joined) {
    Charge charge;
    if (Status status = may_queue(spec, asker, charge); !status.ok()) return status;
    auto job = std::make_unique<Job>();
    job->spec = std::move(spec);
    job->ticket = {asker, next_order_++};
    job->charge = std::move(charge);
    job->asked_ns = hooks_.now_ns();
    found = jobs_.emplace(key, std::move(job)).first;
    if (hooks_.elsewhere && hooks_.elsewhere->look && hooks_.elsewhere->up()) {
      look_elsewhere(key);
    } else {
      asked_[{asker.user, asker.client}].insert(key);
      ++counts_.queued;
      enqueue(*found->second, key);
    }
  }
  Job& job = *found->second;
  if (waiter.done) {
    add_waiter(job, key, std::move(waiter));
  } else if (!job.running && asker.priority > job.ticket.asker.priority) {
    dequeue(job);
    job.ticket.asker.priority = asker.priority;
    enqueue(job, key);
  }
  pump();
  return {};
}

bool Jobs::join(const Hash128& key, Waiter waiter) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return false;
  add_waiter(*found->second, key, std::move(waiter));
  return true;
}

void Jobs::add_waiter(Job& job, const Hash128& key, Waiter waiter) {
  const void* interest = waiter.caller.interest.lock().get();
  if (!interest) return;
  leave(interest);
  if (!job.running && job.waiters.empty()) background_.erase(job.ticket);
  const Queue::Ticket ticket{waiter.caller.asker, next_order_++};
  waits_[interest] = key;
  job.waiters[interest] = {std::move(waiter), ticket};
  if (!job.running) foreground_.push(ticket, key);
}

void Jobs::leave(const void* interest) {
  const auto waits = waits_.find(interest);
  if (waits == waits_.end()) return;
  const Hash128 key = waits->second;
  waits_.erase(waits);
  Job& job = *jobs_.at(key);
  const auto waiting = job.waiters.extract(interest);
  if (job.running) return;
  foreground_.erase(waiting.mapped().ticket);
  if (job.waiters.empty()) background_.push(job.ticket, key);
}

void Jobs::leave(const Asker& asker, const std::shared_ptr<Account>& heir) {
  if (const auto asked = asked_.find({asker.user, asker.client}); asked != asked_.end()) {
    const std::unordered_set<Hash128> keys = std::move(asked->second);
    asked_.erase(asked);
    for (const Hash128& key : keys) {
      Job& job = *jobs_.at(key);
      dequeue(job);
      job.ticket.asker = {asker.user, 0, heir, job.ticket.asker.priority};
      Charge charge;
      const Status room = may_queue(job.spec, job.ticket.asker, charge);
      if (!room.ok() && job.waiters.empty()) {
        jobs_.erase(key);
        --counts_.queued;
        continue;
      }
      job.charge = std::move(charge);
      asked_[{asker.user, 0}].insert(key);
      enqueue(job, key);
    }
  }
  foreground_.leave(asker.user, asker.client);
  background_.leave(asker.user, asker.client);
}

// In the order in which they came.
std::vector<Jobs::Waiter> Jobs::take_waiters(Job& job) {
  std::map<uint64_t, Waiter> by_order;
  for (auto& [interest, waiting] : job.waiters) {
    waits_.erase(interest);
    by_order.emplace(waiting.ticket.order, std::move(waiting.waiter));
  }
  job.waiters.clear();
  std::vector<Waiter> waiters;
  for (auto& [order, waiter] : by_order) waiters.push_back(std::move(waiter));
  return waiters;
}

void Jobs::enqueue(const Job& job, const Hash128& key) {
  if (job.waiters.empty()) background_.push(job.ticket, key);
  for (const auto& [interest, waiting] : job.waiters) foreground_.push(waiting.ticket, key);
}

void Jobs::dequeue(const Job& job) {
  if (job.waiters.empty()) background_.erase(job.ticket);
  for (const auto& [interest, waiting] : job.waiters) foreground_.erase(waiting.ticket);
}

wire::JobState Jobs::state(const Hash128& key) const {
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return wire::JobState::none;
  return found->second->running ? wire::JobState::running : wire::JobState::queued;
}

Jobs::Counts Jobs::counts() const { return counts_; }

void Jobs::pump() {
  // Jobs for different GPUs do not wait for each other.
  std::set<Lane> full;
  start_claimed(full);
  const auto offer = [&](const Hash128& key) { return start(key, full); };
  while (counts_.queued > 0) {
    if (!foreground_.empty()) {
      const Queue::Turn turn = foreground_.offer(offer);
      if (turn == Queue::Turn::taken) continue;
      if (turn == Queue::Turn::over) return;
    }
    if (background_.offer(offer) != Queue::Turn::taken) return;
  }
}

Jobs::Lane Jobs::lane_of(const JobSpec& spec) {
  return spec.kind == wire::JobKind::measure ? Lane(spec.target, spec.gpu) : Lane();
}

Jobs::Queue::Turn Jobs::start(const Hash128& key, std::set<Lane>& full) {
  Job& job = *jobs_.at(key);
  const Lane lane = lane_of(job.spec);
  if (!full.contains(lane)) {
    const bool shared = hooks_.elsewhere && hooks_.elsewhere->up();
    if (shared ? claim(key) : run(key)) {
      if (!shared) leave_queue(job, key);
      return Queue::Turn::taken;
    }
    full.insert(lane);
  }
  return job.spec.kind == wire::JobKind::measure ? Queue::Turn::passed : Queue::Turn::over;
}

// False when no worker is free.
bool Jobs::run(const Hash128& key) {
  Job& job = *jobs_.at(key);
  const bool started = hooks_.workers->start(
      job.spec, [this, key](Result<wire::JobDone> done) { finish_compile(key, std::move(done)); },
      [this, key](const wire::JobProgress& progress) { progressed(key, progress); });
  if (started) job.queue_ns = hooks_.now_ns() - job.asked_ns;
  return started;
}

void Jobs::leave_queue(Job& job, const Hash128& key) {
  dequeue(job);
  unlist(job, key);
  job.running = true;
  --counts_.queued;
  ++counts_.running;
}

void Jobs::queue_again(Job& job, const Hash128& key) {
  job.running = false;
  --counts_.running;
  ++counts_.queued;
  asked_[{job.ticket.asker.user, job.ticket.asker.client}].insert(key);
  enqueue(job, key);
}

// ---- elsewhere ----

void Jobs::look_elsewhere(const Hash128& key) {
  Job& job = *jobs_.at(key);
  job.running = true;
  ++counts_.running;
  hooks_.elsewhere->look(job.spec, [this, key](const std::optional<JobResult>& found) {
    if (found) return finish(key, *found);
    queue_again(*jobs_.at(key), key);
    pump();
  });
}

// As late as can be, so that the nodes of a fleet share the work: one that claims all it wants leaves the
// others nothing to do.
bool Jobs::claim(const Hash128& key) {
  Job& job = *jobs_.at(key);
  const Lane lane = lane_of(job.spec);
  if (claiming_[lane] >= kClaimsAhead) return false;
  leave_queue(job, key);
  ++claiming_[lane];
  hooks_.elsewhere->claim(job.spec, [this, key, lane, first = std::make_shared<bool>(true)](
                                        Elsewhere::Turn turn, const std::optional<JobResult>& found) {
    if (std::exchange(*first, false)) --claiming_[lane];
    claimed(key, turn, found);
  });
  return true;
}

void Jobs::claimed(const Hash128& key, Elsewhere::Turn turn, const std::optional<JobResult>& found) {
  if (found)
    finish(key, *found);
  else if (turn == Elsewhere::Turn::mine)
    claimed_.push_back(key);
  else if (turn == Elsewhere::Turn::again)
    queue_again(*jobs_.at(key), key);
  pump();
}

// Nothing is claimed for workers that those wait for which are left.
void Jobs::start_claimed(std::set<Lane>& full) {
  std::erase_if(claimed_, [&](const Hash128& key) {
    const Lane lane = lane_of(jobs_.at(key)->spec);
    if (!full.contains(lane) && run(key)) return true;
    full.insert(lane);
    return false;
  });
}

void Jobs::progressed(const Hash128& key, const wire::JobProgress& progress) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return;
  if (hooks_.progress) hooks_.progress(found->second->spec, progress);
  for (const auto& [interest, waiting] : found->second->waiters)
    if (waiting.waiter.progress && !waiting.waiter.caller.interest.expired())
      waiting.waiter.progress(progress);
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
  return retry(job, key);
}

bool Jobs::retry(Job& job, const Hash128& key) {
  if (job.retried) return false;
  job.retried = true;
  ++counts_.retried;
  queue_again(job, key);
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
    const bool again = killed_by_others                   ? retry(job, key)
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

// Out of everything but the hands of the caller.
std::unique_ptr<Jobs::Job> Jobs::take(const Hash128& key) {
  const auto found = jobs_.find(key);
  std::unique_ptr<Job> job = std::move(found->second);
  jobs_.erase(found);
  if (job->running) {
    --counts_.running;
  } else {
    dequeue(*job);
    unlist(*job, key);
    --counts_.queued;
  }
  return job;
}

void Jobs::unlist(const Job& job, const Hash128& key) {
  const auto asked = asked_.find({job.ticket.asker.user, job.ticket.asker.client});
  asked->second.erase(key);
  if (asked->second.empty()) asked_.erase(asked);
}

void Jobs::finish(const Hash128& key, const JobResult& result) {
  // Out of the table first: a waiter may ask for the same key again.
  const std::unique_ptr<Job> job = take(key);
  if (!result.elsewhere) ++(result.status.ok() ? counts_.done : counts_.failed);
  hooks_.ended(job->spec, job->ticket.asker, result);
  for (const Waiter& waiter : take_waiters(*job))
    if (!waiter.caller.interest.expired()) waiter.done(result);
}

std::vector<Hash128> Jobs::queued(const std::function<bool(const Job&)>& which) const {
  std::vector<Hash128> keys;
  for (const auto& [key, job] : jobs_)
    if (!job->running && which(*job)) keys.push_back(key);
  return keys;
}

size_t Jobs::drop_background(const std::function<bool(const Hash128&)>& which) {
  size_t dropped = 0;
  for (const Hash128& key : queued([](const Job& job) { return job.waiters.empty(); })) {
    if (which && !which(key)) continue;
    take(key);
    ++dropped;
  }
  return dropped;
}

void Jobs::dismiss_waiters(const Status& status) {
  std::vector<std::pair<Hash128, std::vector<Waiter>>> dismissed;
  for (auto& [key, job] : jobs_) {
    if (!job->running) dequeue(*job);
    dismissed.emplace_back(key, take_waiters(*job));
    if (!job->running) enqueue(*job, key);
  }
  for (const auto& [key, waiters] : dismissed) {
    JobResult result;
    result.key = key;
    result.status = status;
    for (const Waiter& waiter : waiters)
      if (!waiter.caller.interest.expired()) waiter.done(result);
  }
}

void Jobs::fail_queued(const Status& status, const std::function<bool(const JobSpec&)>& which) {
  for (const Hash128& key : queued([&](const Job& job) { return !which || which(job.spec); })) {
    if (!jobs_.contains(key)) continue;  // the end of another one has ended it
    JobResult result;
    result.key = key;
    result.status = status;
    finish(key, result);
  }
}

}  // namespace quern
