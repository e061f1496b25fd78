#include "daemon/searches.h"

#include <cstdlib>

namespace quern {

namespace {

constexpr size_t kMaxConsidered = 1 << 16;  // then the set starts anew; the store knows the rest
constexpr size_t kMaxStateBytes = 1 << 20;  // a longer state of a search is not worth its room
constexpr const char* kModel = "model";     // the "device" of modelled times in the store

// Whether the failure says something about the graph, and not only about this moment.
bool is_lasting(const Status& status) {
  switch (status.code()) {
    case ErrorCode::BUSY:
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
             [this](const JobResult& result) { ended(result); }, hooks_.now_ns, hooks_.max_queued}) {}

void Searches::consider(const Hash128& key, std::string_view material, Tier stands) {
  if (!hooks_.store || hooks_.store->read_only() || draining_ || stands == Tier::measured) return;
  if (hooks_.workers->compiler().kind == CompilerState::Kind::missing) return;
  if (considered_.size() >= kMaxConsidered) considered_.clear();
  if (!considered_.insert(key).second) return;
  std::string state;
  if (const auto findings = hooks_.store->findings(key); findings.ok()) {
    // What was looked at to its end is not looked at again.
    if (findings->state.empty()) return;
    state = findings->state;
  }
  auto parts = parse_key_material(material);
  if (!parts) return;
  JobSpec spec;
  spec.kind = wire::JobKind::optimize;
  spec.graph = key_part(*parts, "graph");
  spec.target = key_part(*parts, "target");
  spec.toolchain = key_part(*parts, "toolchain");
  spec.constraints = key_part(*parts, "constraints");
  spec.numerics =
      static_cast<uint32_t>(std::strtoul(std::string(key_part(*parts, "policy")).c_str(), nullptr, 16));
  spec.material = plan_key(spec.graph, spec.target, spec.numerics, spec.toolchain, spec.constraints);
  spec.state = std::move(state);
  if (spec.material.key() != key) return;  // of another epoch
  bool joined = false;
  // When too many are queued, a later daemon's first use of the plan asks again.
  if (Status status = jobs_.ask(std::move(spec), 0, {}, joined); !status.ok())
    hooks_.log->debug("event=search_not_queued key=" + to_hex(key) + " reason=\"" + status.message() + "\"");
}

void Searches::forget(const Hash128& key) { considered_.erase(key); }

void Searches::drain() {
  draining_ = true;
  jobs_.dismiss_waiters(Status(ErrorCode::CANCELLED, "the daemon is about to exit"));
  jobs_.drop_background();
}

// What a worker says is checked before it is kept: what it ran is the least trusted of all. The buffers must
// be those of the plan that stands, because clients swap one for the other.
Status Searches::check_plan(const JobSpec& spec, const JobResult& result) const {
  auto plan = decode_plan(result.plan);
  if (!plan) return Status(ErrorCode::INTERNAL, "the worker's plan is no good: " + plan.status().message());
  auto stands = hooks_.store->peek(result.key);
  if (!stands) return Status(ErrorCode::NOT_FOUND, "the plan was removed while a better one was looked for");
  auto old = decode_plan(stands->plan);
  if (!old) return old.status();
  if (plan->target != spec.target || plan->cubin.empty() || plan->tier != Tier::modelled ||
      plan->inputs != old->inputs || plan->outputs != old->outputs)
    return Status(ErrorCode::INTERNAL, "the worker's plan is not one for this graph");
  return {};
}

void Searches::publish(const JobSpec& spec, JobResult result, std::function<void(JobResult)> done) {
  if (result.findings.state.size() > kMaxStateBytes) result.findings.state.clear();
  auto shared = std::make_shared<JobResult>(std::move(result));
  const auto finish = [this, shared, done](const Status& status) {
    hooks_.post([=] {
      shared->stored = status;
      done(std::move(*shared));
    });
  };
  if (shared->plan.empty()) return hooks_.store->put_findings(shared->key, shared->findings, finish);
  if (shared->status = check_plan(spec, *shared); !shared->status.ok()) return done(std::move(*shared));
  PlanPut put;
  put.material = spec.material;
  put.tier = Tier::modelled;
  put.plan = shared->plan;
  put.findings = shared->findings;
  put.timing.emplace();
  put.timing->device = kModel;
  put.timing->median_ns = static_cast<double>(shared->modelled_ns);
  hooks_.store->put(std::move(put), [this, shared, finish](Result<PutOutcome> outcome) {
    if (!outcome.ok()) return finish(outcome.status());
    hooks_.post([this, key = shared->key, outcome = outcome.value()] {
      if (!outcome.published) return;
      ++published_;
      hooks_.better(key, outcome.generation, outcome.tier);
    });
    shared->generation = outcome->generation;
    shared->tier = outcome->tier;
    finish({});
  });
}

void Searches::ended(const JobResult& result) {
  deaths_.erase(result.key);
  const std::string key = to_hex(result.key);
  if (result.status.ok()) {
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
  if (!is_lasting(result.status)) return;
  Findings findings;
  findings.reason = "the search failed: " + result.status.message();
  hooks_.store->put_findings(result.key, std::move(findings));
}

}  // namespace quern
