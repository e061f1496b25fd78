#include "daemon/planner.h"

#include "core/base/bytes.h"
#include "core/base/numerics.h"
#include "core/base/target.h"
#include "core/graph/canon.h"
#include "core/graph/text.h"
#include "core/search/constraints.h"
#include "daemon/fleet.h"

namespace quern {

namespace {

Status no_compiler(const CompilerState& state) {
  return Status(ErrorCode::NO_COMPILER,
                "this graph is not in the cache and there is no compiler: " + state.reason);
}

bool waits_for(uint8_t tier) { return tier > static_cast<uint8_t>(Tier::baseline); }

Result<std::shared_ptr<const StoredPlan>> shared(Result<StoredPlan> found) {
  if (!found) return found.status();
  return std::make_shared<const StoredPlan>(std::move(*found));
}

}  // namespace

Planner::Planner(Hooks hooks)
    : hooks_(std::move(hooks)),
      setbacks_(hooks_.store),
      jobs_({hooks_.workers,
             [this](const JobSpec& spec, JobResult result, std::function<void(JobResult)> done) {
               publish(spec, std::move(result), std::move(done));
             },
             [this](const Hash128& key, const std::string& how) { return setbacks_.worker_died(key, how); },
             [this](const JobSpec& spec, const Asker& asker, const JobResult& result) {
               job_ended(spec, asker, result);
             },
             hooks_.now_ns,
             hooks_.max_queued,
             {},
             elsewhere(wire::JobKind::baseline)}),
      searches_(
          {hooks_.search ? hooks_.store : nullptr, hooks_.workers, hooks_.post, hooks_.log, hooks_.now_ns,
           hooks_.max_queued, hooks_.limits,
           [this](const Hash128& key, uint64_t generation, Tier tier) { made_better(key, generation, tier); },
           [this](const JobSpec& spec, const Asker& asker, const JobResult& result) {
             search_ended(spec, asker, result);
           },
           elsewhere(wire::JobKind::optimize),
           [this](const JobSpec& spec, const JobResult& result, bool stored) {
             settled(spec, result, stored);
           }}),
      measures_(
          {hooks_.store, hooks_.workers, hooks_.post, hooks_.log, hooks_.now_ns, hooks_.max_queued,
           hooks_.measuring,
           // The fleet gets it when the measuring is over: until then its time is one look, and often too
           // short.
           hooks_.better, elsewhere(wire::JobKind::measure),
           [this](const JobSpec& spec, const JobResult& result) {
             settled(spec, result, result.status.ok() && result.stored.ok());
           }}) {
  if (hooks_.store)
    if (auto known = hooks_.store->meta(kMetaToolchain); known.ok()) toolchain_ = *known;
  compiler_changed();
}

void Planner::get(const Ask& ask) {
  if (waits_for(ask->wanted)) return find_or_make(ask, until(ask->wanted, ask->caller, ask->reply));
  find_or_make(ask, ask->reply);
}

std::shared_ptr<const StoredPlan> Planner::find_recent(const PlanRequest& request, uint32_t flags,
                                                       const Asker& asker) {
  if (!hooks_.store || toolchain_.empty() || request.graph.size() > kLongText) return nullptr;
  if (front_.toolchain != toolchain_) {
    front_ = {toolchain_, request_key_head(toolchain_), 0};
    front_.head = front_.material.bytes().size();
  }
  front_.material.cut(front_.head);
  add_request(front_.material, request);
  auto found = hooks_.store->find_recent(front_.material);
  if (!found) return nullptr;
  note_hit(*found, flags, 0, asker);
  ++counts_.front_hits;
  return found;
}

void Planner::find_or_make(const Ask& ask, const Reply& reply) {
  const PlanRequest& request = ask->request;
  if (Status status = check_request(request); !status.ok()) return fail(reply, status);
  Store* const indexed = toolchain_.empty() ? nullptr : hooks_.store;
  const bool later = request.graph.size() > kLongText;
  std::optional<KeyMaterial> material;
  if (!later) material = request_material(request, toolchain_);
  if (indexed && material && answer_front(ask, indexed->find_request(*material), reply)) return;
  const auto looked = std::make_shared<Looked>();
  if (material) looked->request = std::move(*material);
  looked->toolchain = toolchain_;
  hooks_.aside->ask(
      ask->caller,
      [ask, looked, later, store = later ? indexed : nullptr] {
        if (later) looked->request = request_material(ask->request, looked->toolchain);
        if (store) looked->front = store->find_request(looked->request);
        if (!looked->front || !looked->front->ok()) looked->canonical = canonicalise(ask->request);
      },
      [this, ask, looked, reply] {
        if (looked->front && answer_front(ask, *looked->front, reply)) return;
        if (!looked->canonical.ok()) return fail(reply, looked->canonical.status());
        make(ask, looked, reply);
      });
}

bool Planner::answer_front(const Ask& ask, const Found& found, const Reply& reply) {
  if (!answer_from_store(found, ask->flags, ask->wanted, ask->caller.asker, reply)) return false;
  ++counts_.front_hits;
  return true;
}

void Planner::make(const Ask& ask, const std::shared_ptr<Looked>& looked, const Reply& reply) {
  // The compiler may have become known, or another, since the request came.
  if (looked->toolchain != toolchain_) {
    looked->toolchain = toolchain_;
    looked->request = request_material(ask->request, toolchain_);
  }
  const uint32_t flags = ask->flags;
  Keyed keyed = make_key(ask->request, looked->canonical.value());
  const Hash128 key = keyed.material.key();
  if (hooks_.store && !toolchain_.empty() &&
      answer_from_store(shared(hooks_.store->get(keyed.material)), flags, ask->wanted, ask->caller.asker,
                        reply)) {
    hooks_.store->put_request(std::move(looked->request), keyed.material);
    return;
  }
  if (compiler_.kind == CompilerState::Kind::starting &&
      (toolchain_.empty() || !(flags & wire::kGetNoStart))) {
    // What the key is made with is not known yet. It soon will be.
    deferred_.push_back({ask->caller.interest, [this, ask, looked, reply] { make(ask, looked, reply); }});
    return;
  }
  ++counts_.misses;
  if (compiler_.kind == CompilerState::Kind::missing && toolchain_.empty()) {
    hooks_.workers->look_again();
    return fail(reply, no_compiler(compiler_));
  }
  if (const auto wanted = ask->key.lock()) *wanted = key;
  if (flags & wire::kGetNoStart && hooks_.fleet && hooks_.fleet->usable())
    return look_only(std::move(keyed), std::move(looked->request), reply);
  if (Status status = may_start(key, flags); !status.ok()) return fail(reply, status, key);
  start_job(ask, std::move(keyed), std::move(looked->request), reply);
}

void Planner::start_job(const Ask& ask, Keyed keyed, KeyMaterial request, const Reply& reply) {
  const Hash128 key = keyed.material.key();
  const bool waits = !(ask->flags & wire::kGetNoWait);
  JobSpec spec;
  spec.material = keyed.material;
  spec.request = std::move(request);
  spec.graph = std::move(keyed.canonical);
  spec.target = ask->request.target;
  spec.numerics = ask->request.numerics;
  spec.toolchain = toolchain_;
  auto joined = std::make_shared<bool>(false);
  Jobs::Waiter waiter;
  if (waits) {
    waiter.caller = ask->caller;
    waiter.done = [this, joined, reply, ask, material = keyed.material](const JobResult& result) {
      // The job entered the front index under the words of whoever started it; these may be others.
      if (*joined && hooks_.store && result.status.ok() && result.stored.ok())
        hooks_.store->put_request(request_material(ask->request, toolchain_), material);
      if (!result.status.ok()) ++counts_.errors;
      reply(from_job(result, result.elsewhere ? wire::Origin::hit
                             : *joined        ? wire::Origin::shared
                                              : wire::Origin::compiled));
    };
  }
  if (Status status = jobs_.ask(std::move(spec), ask->caller.asker, std::move(waiter), *joined); !status.ok())
    return fail(reply, status, key);
  counts_.shared += *joined;
  if (waits) return;
  PlanAnswer pending;
  pending.status = Status(ErrorCode::PENDING, "");
  pending.key = key;
  pending.state = jobs_.state(key);
  reply(std::move(pending));
}

void Planner::leave(const void* interest) {
  hooks_.aside->leave(interest);
  jobs_.leave(interest);
  searches_.leave(interest);
  measures_.leave(interest);
  std::erase_if(deferred_, [&](const Deferred& each) {
    const auto alive = each.interest.lock();
    return !alive || alive.get() == interest;
  });
}

void Planner::leave(const Asker& asker, const std::shared_ptr<Account>& heir) {
  hooks_.aside->leave(asker);
  jobs_.leave(asker, heir);
  searches_.leave(asker, heir);
  measures_.leave(asker, heir);
}

// ---- requests
// -----------------------------------------------------------------------------------------------

void Planner::wait(const Hash128& key, uint8_t wanted, const Caller& caller, Reply reply) {
  reply = until(wanted, caller, std::move(reply));
  if (hooks_.store && answer_from_store(shared(hooks_.store->peek(key)), 0, wanted, caller.asker, reply))
    return;
  auto done = [this, reply](const JobResult& result) { reply(from_job(result, wire::Origin::shared)); };
  if (jobs_.join(key, {caller, std::move(done)})) return;
  Status why(ErrorCode::NOT_FOUND, "no plan and no job for key " + to_hex(key));
  if (auto failure = setbacks_.last_failure(key)) why = *failure;
  if (auto reason = setbacks_.quarantine(key)) why = Status(ErrorCode::QUARANTINED, *reason);
  fail(reply, why, key);
}

Status Planner::check_request(const PlanRequest& request) {
  if (request.graph.size() > wire::kMaxGraphBytes)
    return Status(ErrorCode::LIMIT, "the graph text has " + std::to_string(request.graph.size()) +
                                        " bytes and may have " + std::to_string(wire::kMaxGraphBytes));
  if (request.numerics & ~kAllowTf32)
    return Status(ErrorCode::INVALID_ARGUMENT, "numerics policy " + std::to_string(request.numerics) +
                                                   " has bits other than bit 0 (tf32 allowed)");
  if (request.constraints.size() > wire::kMaxConstraintBytes)
    return Status(ErrorCode::LIMIT, "the constraints have " + std::to_string(request.constraints.size()) +
                                        " bytes and may have " + std::to_string(wire::kMaxConstraintBytes));
  auto target = find_target(request.target);
  return target.ok() ? Status() : target.status();
}

KeyMaterial Planner::request_material(const PlanRequest& request, const std::string& toolchain) {
  KeyMaterial material =
      request_key_head(toolchain, request.target.size() + request.graph.size() + request.constraints.size());
  add_request(material, request);
  return material;
}

void Planner::add_request(KeyMaterial& head, const PlanRequest& request) {
  ByteWriter policy;
  policy.put(request.numerics);
  policy.string(request.target);
  const std::string_view pieces[] = {policy.view(), request.graph};
  quern::add_request(head, pieces, request.constraints);
}

Result<Planner::Canonical> Planner::canonicalise(const PlanRequest& request) {
  auto graph = parse_graph(request.graph);
  if (!graph) return graph.status();
  auto constraints = parse_constraints(request.constraints);
  if (!constraints) return constraints.status();
  return Canonical{canonical_text(*graph), print_constraints(*constraints)};
}

Planner::Keyed Planner::make_key(const PlanRequest& request, const Canonical& canonical) const {
  return {canonical.graph,
          plan_key(canonical.graph, request.target, request.numerics, toolchain_, canonical.constraints)};
}

bool Planner::answer_from_store(const Found& found, uint32_t flags, uint8_t wanted, const Asker& asker,
                                const Reply& reply) {
  if (!found) {
    if (found.status().code() != ErrorCode::NOT_FOUND)
      hooks_.log->warning("event=store_read_failed reason=\"" + found.status().message() + "\"");
    return false;
  }
  note_hit(**found, flags, wanted, asker);
  reply(stored_answer(*found));
  return true;
}

void Planner::note_hit(const StoredPlan& stored, uint32_t flags, uint8_t wanted, const Asker& asker) {
  ++counts_.hits;
  if (flags & wire::kGetNoStart) return;
  const bool better = static_cast<uint8_t>(stored.tier) < wanted;
  searches_.consider(stored.key, stored.material, stored.tier, asker,
                     better ? Searches::Wish::better : Searches::Wish::use);
  measures_.consider(stored.key, stored.material, asker);
}

PlanAnswer Planner::stored_answer(std::shared_ptr<const StoredPlan> stored) {
  PlanAnswer answer;
  answer.key = stored->key;
  answer.generation = stored->generation;
  answer.tier = stored->tier;
  const std::string* const plan = &stored->plan;
  answer.plan = {std::move(stored), plan};
  return answer;
}

Status Planner::may_start(const Hash128& key, uint32_t flags) {
  if (flags & wire::kGetNoStart)
    return Status(ErrorCode::NOT_FOUND, "not in the cache, and the request says not to compile it");
  if (jobs_.state(key) != wire::JobState::none) return {};
  if (auto reason = setbacks_.quarantine(key)) return Status(ErrorCode::QUARANTINED, *reason);
  if (draining_) return Status(ErrorCode::BUSY, "the daemon is about to exit; connect again to a new one");
  if (compiler_.kind != CompilerState::Kind::missing) return {};
  hooks_.workers->look_again();
  return no_compiler(compiler_);
}

void Planner::fail(const Reply& reply, Status status, std::optional<Hash128> key) {
  ++counts_.errors;
  PlanAnswer answer;
  answer.status = std::move(status);
  answer.key = key;
  reply(std::move(answer));
}

PlanAnswer Planner::from_job(const JobResult& result, wire::Origin origin) const {
  PlanAnswer answer;
  answer.status = result.status;
  answer.key = result.key;
  answer.plan = std::make_shared<const std::string>(result.plan);
  answer.generation = result.generation;
  answer.tier = result.tier;
  answer.origin = origin;
  answer.stored = result.stored;
  answer.elsewhere = result.elsewhere;
  answer.queue_ns = result.queue_ns;
  answer.emit_ns = result.emit_ns;
  answer.compile_ns = result.compile_ns;
  return answer;
}

// What a worker says is checked before it is kept or passed on: what it ran is the least trusted of all.
Status Planner::check_plan(const std::string& encoded, const std::string& target) {
  auto plan = decode_plan(encoded);
  if (!plan) return Status(ErrorCode::INTERNAL, "the worker's plan is no good: " + plan.status().message());
  if (plan->target != target || plan->cubin.empty())
    return Status(ErrorCode::INTERNAL, "the worker's plan is for \"" + plan->target + "\" or has no code");
  return {};
}

void Planner::publish(const JobSpec& spec, JobResult result, std::function<void(JobResult)> done) {
  if (result.status = check_plan(result.plan, spec.target); !result.status.ok())
    return done(std::move(result));
  result.stored = hooks_.no_store;
  if (!hooks_.store) return done(std::move(result));
  PlanPut put;
  put.material = spec.material;
  put.tier = Tier::baseline;
  put.plan = result.plan;
  put.request = spec.request;
  auto shared = std::make_shared<JobResult>(std::move(result));
  hooks_.store->put(std::move(put),
                    [this, shared, done, material = spec.material](Result<PutOutcome> outcome) {
                      hooks_.post([=, this] {
                        if (settle(*shared, material, outcome))
                          made_better(shared->key, shared->generation, shared->tier);
                        done(std::move(*shared));
                      });
                    });
}

bool Planner::settle(JobResult& result, const KeyMaterial& material, const Result<PutOutcome>& outcome) {
  if (!outcome.ok()) {
    // The plan is right all the same, and whoever waits for it gets it.
    result.stored = outcome.status();
    hooks_.log->warning("event=plan_not_stored key=" + to_hex(result.key) + " reason=\"" +
                        outcome.status().message() + "\"");
    return false;
  }
  result.generation = outcome.value().generation;
  result.tier = outcome.value().tier;
  if (outcome.value().published) return true;
  // Something as good or better stands there already: that is the answer.
  if (auto standing = hooks_.store->get(material); standing.ok()) result.plan = std::move(standing->plan);
  return false;
}

void Planner::job_ended(const JobSpec& spec, const Asker& asker, const JobResult& result) {
  const std::string key = to_hex(result.key);
  settled(spec, result, false);
  if (result.elsewhere) {
    setbacks_.succeeded(result.key);
    if (result.stored.ok()) {
      searches_.consider(result.key, spec.material.bytes(), result.tier, asker);
      measures_.consider(result.key, spec.material.bytes(), asker);
    }
    hooks_.log->info("event=plan_from_fleet key=" + key + " generation=" + std::to_string(result.generation));
  } else if (result.status.ok()) {
    setbacks_.succeeded(result.key);
    if (result.stored.ok()) searches_.consider(result.key, spec.material.bytes(), result.tier, asker);
    hooks_.log->info("event=job_done key=" + key + " generation=" + std::to_string(result.generation) +
                     " queue_us=" + std::to_string(result.queue_ns / 1000) +
                     " emit_us=" + std::to_string(result.emit_ns / 1000) +
                     " compile_us=" + std::to_string(result.compile_ns / 1000));
  } else {
    setbacks_.failed(result.key, result.status);
    if (hooks_.failed) hooks_.failed(result.key);
    hooks_.log->warning("event=job_failed key=" + key + " error=" + error_name(result.status.code()) +
                        " reason=\"" + result.status.message() + "\"");
  }
}

void Planner::forgive(const Hash128& key) {
  setbacks_.release(key);
  searches_.forget(key);
  measures_.forget(key);
}

void Planner::compiler_changed() {
  compiler_ = hooks_.workers->compiler();
  if (compiler_.kind == CompilerState::Kind::starting) return;
  searches_.compiler_changed();
  if (compiler_.kind == CompilerState::Kind::ready && compiler_.toolchain != toolchain_) {
    toolchain_ = compiler_.toolchain;
    if (hooks_.store) hooks_.store->set_meta(kMetaToolchain, toolchain_);
  }
  hooks_.log->info(compiler_.kind == CompilerState::Kind::ready
                       ? "event=compiler_ready toolchain=\"" + toolchain_ + "\""
                       : "event=no_compiler reason=\"" + compiler_.reason + "\"");
  for (const Deferred& each : std::exchange(deferred_, {}))
    if (!each.interest.expired()) each.run();
}

void Planner::import(PlanPut put, std::function<void(const Result<PutOutcome>&)> done) {
  drop_foreign_time(put);
  hooks_.store->put(std::move(put), [this, done = std::move(done)](Result<PutOutcome> outcome) {
    hooks_.post([this, done, outcome = std::move(outcome)] {
      if (outcome.ok() && outcome.value().published) {
        setbacks_.succeeded(outcome.value().key);
        made_better(outcome.value().key, outcome.value().generation, outcome.value().tier);
      }
      done(outcome);
    });
  });
}

size_t Planner::drop_queued(const std::vector<Hash128>& keys) {
  size_t dropped = 0;
  for (const Hash128& key : keys) {
    const auto is_key = [&key](const Hash128& other) { return other == key; };
    const size_t jobs = jobs_.drop_background(is_key) + searches_.drop_queued(is_key);
    dropped += jobs > 0;
  }
  return dropped;
}

void Planner::drain() {
  draining_ = true;
  searches_.drain();
  measures_.drain();
  jobs_.drop_background();
}

bool Planner::idle() const { return jobs_.counts().queued == 0 && jobs_.counts().running == 0; }

bool Planner::quiet() const {
  const auto none = [](const Jobs::Counts& counts) { return counts.queued == 0 && counts.running == 0; };
  return idle() && none(searches_.counts()) && none(measures_.counts());
}

void Planner::give_up() {
  jobs_.fail_queued(Status(ErrorCode::CANCELLED, "the daemon was told to exit before this job could run"));
}

wire::JobStatusReply Planner::status(const Hash128& key) const {
  wire::JobStatusReply reply;
  reply.key = key;
  reply.state = jobs_.state(key);
  if (hooks_.store) {
    if (auto stored = hooks_.store->peek(key); stored.ok()) {
      reply.generation = stored->generation;
      reply.tier = static_cast<uint8_t>(stored->tier);
    }
  }
  if (reply.state == wire::JobState::none) reply.state = searches_.state(key);
  if (reply.state == wire::JobState::none) reply.state = measures_.state(key);
  if (reply.state != wire::JobState::none) return reply;
  if (auto reason = setbacks_.quarantine(key)) {
    reply.state = wire::JobState::quarantined;
    reply.reason = *reason;
  } else if (auto failure = setbacks_.last_failure(key)) {
    reply.state = wire::JobState::failed;
    reply.reason = std::string(error_name(failure->code())) + ": " + failure->message();
  } else if (hooks_.store) {
    if (const auto findings = hooks_.store->findings(key); findings.ok()) reply.reason = findings->reason;
  }
  return reply;
}

}  // namespace quern
