// The planner's dealings with the second level (fleet.h).
#include <algorithm>

#include "core/optimize/program.h"
#include "daemon/fleet.h"
#include "daemon/planner.h"

namespace quern {

namespace {

Fleet::Errand errand_of(const JobSpec& spec) {
  return {spec.kind, spec.material, spec.device, spec.budget_ms};
}

}  // namespace

void Planner::made_better(const Hash128& key, uint64_t generation, Tier tier) {
  hooks_.better(key, generation, tier);
  if (hooks_.fleet) hooks_.fleet->offer(key);
}

// A time on another GPU says nothing about this machine's: without it the plan wins by its tier alone.
void Planner::drop_foreign_time(PlanPut& put) const {
  if (put.device.empty() || put.device == kModelDevice) return;
  const std::vector<GpuState> gpus = hooks_.workers->gpus();
  if (std::any_of(gpus.begin(), gpus.end(), [&](const GpuState& gpu) { return gpu.device == put.device; }))
    return;
  put.device.clear();
  put.program.reset();
  put.timings.clear();
}

// Whether a plan that another node has sent is what the job would bring.
bool Planner::serves(const JobSpec& spec, const FleetPlan& plan, bool waited) const {
  if (spec.kind == wire::JobKind::baseline || !hooks_.store) return true;
  const Hash128 key = spec.material.key();
  if (spec.kind == wire::JobKind::measure)
    return waited || plan.rank.timings > measures_.measured_on(spec.device, key);
  // Who wants more than the result, which may have come as news meanwhile, wants its programs.
  if (plan.rank.searched == kSearched && (waited || plan.put.programs || !spec.for_programs)) return true;
  const auto stands = hooks_.store->peek(key);
  const auto findings = hooks_.store->findings(key);
  return !stands.ok() || plan.rank.tier > stands->tier ||
         plan.rank.searched > how_searched(findings.ok() ? &*findings : nullptr);
}

// The lease goes back, after what was found.
void Planner::settled(const JobSpec& spec, const JobResult& result, bool stored) {
  if (!hooks_.fleet) return;
  if (stored && !result.elsewhere && spec.kind == wire::JobKind::measure) hooks_.fleet->offer(result.key);
  if (stored && !result.elsewhere && !result.published) hooks_.fleet->offer(result.key, spec.device);
  hooks_.fleet->release(errand_of(spec));
}

std::optional<Jobs::Elsewhere> Planner::elsewhere(wire::JobKind kind) {
  Fleet* const fleet = hooks_.fleet;
  if (!fleet) return std::nullopt;
  using Turn = Jobs::Elsewhere::Turn;
  Jobs::Elsewhere elsewhere;
  elsewhere.up = [fleet] { return fleet->usable(); };
  const auto look = [this, fleet](const JobSpec& spec, std::function<void(std::optional<JobResult>)> done) {
    fleet->look(spec.material, [this, spec, done = std::move(done)](std::optional<FleetPlan> found) {
      take(spec, std::move(found), done);
    });
  };
  if (kind == wire::JobKind::baseline) elsewhere.look = look;
  elsewhere.claim = [this, fleet](const JobSpec& spec,
                                  std::function<void(Turn, std::optional<JobResult>)> done) {
    // On which GPU it will be is not known yet.
    if (spec.kind == wire::JobKind::measure && spec.device.empty())
      return hooks_.post([done = std::move(done)] { done(Turn::mine, {}); });
    const auto serves = [this, spec](const FleetPlan& plan, bool waited) {
      return this->serves(spec, plan, waited);
    };
    fleet->claim(errand_of(spec), serves, [this, spec, done = std::move(done)](Fleet::Claim claim) {
      const Turn turn = claim.turn == Fleet::Turn::mine     ? Turn::mine
                        : claim.turn == Fleet::Turn::others ? Turn::others
                                                            : Turn::again;
      take(spec, std::move(claim.found),
           [done, turn](std::optional<JobResult> result) { done(turn, std::move(result)); });
    });
  };
  return elsewhere;
}

// What was found becomes this node's plan, unless one as good stands here.
void Planner::take(const JobSpec& spec, std::optional<FleetPlan> found,
                   const std::function<void(std::optional<JobResult>)>& done) {
  if (!found) return done({});
  PlanPut put = std::move(found->put);
  drop_foreign_time(put);
  if (spec.kind == wire::JobKind::baseline) put.request = spec.request;
  auto result = std::make_shared<JobResult>();
  result->key = spec.material.key();
  result->device = spec.device;
  result->timed_out = found->rank.searched < kSearched;
  if (hooks_.store && brings_programs(put))
    result->programs = *put.programs;
  else
    put.programs.reset();  // those here may have code
  for (const Timing& timing : put.timings)
    result->timings.push_back({.device = timing.device,
                               .program = timing.program,
                               .cold_ps = static_cast<uint64_t>(timing.cold_ns * 1e3),
                               .refusal = timing.refusal});
  if (spec.kind == wire::JobKind::measure)
    result->findings.reason = "another node of the fleet has measured it on the same device";
  result->tier = put.tier;
  result->plan = put.plan;
  result->elsewhere = true;
  result->stored = hooks_.no_store;
  if (!hooks_.store) return done(std::move(*result));
  hooks_.store->put(std::move(put),
                    [this, result, done, material = spec.material](Result<PutOutcome> outcome) {
                      hooks_.post([this, result, done, material, outcome = std::move(outcome)] {
                        result->stored = {};
                        if (settle(*result, material, outcome))
                          hooks_.better(result->key, result->generation, result->tier);
                        done(std::move(*result));
                      });
                    });
}

// Whether there are some among them that this node does not have, but for the plan's own: that may be one which a measuring made.
bool Planner::brings_programs(const PlanPut& put) const {
  if (!put.programs) return false;
  const auto own = hooks_.store->programs(put.material.key());
  const auto known = own.ok() ? decode_programs(*own) : Result<std::vector<Program>>(own.status());
  const auto sent = decode_programs(*put.programs);
  if (!known || !sent) return sent.ok();
  return !std::all_of(sent->begin(), sent->end(), [&](const Program& program) {
    return program.name() == put.program ||
           std::any_of(known->begin(), known->end(),
                       [&](const Program& each) { return each.name() == program.name(); });
  });
}

void Planner::import(FleetPlan plan) {
  drop_foreign_time(plan.put);
  const bool programs = brings_programs(plan.put);
  if (!programs) plan.put.programs.reset();  // those here may have code
  const std::string material = plan.put.material.bytes();
  hooks_.store->put(std::move(plan.put), [this, programs, material](Result<PutOutcome> outcome) {
    hooks_.post([=, this] {
      if (!outcome.ok() || !outcome->published) return;
      hooks_.better(outcome->key, outcome->generation, outcome->tier);
      measures_.consider(outcome->key, material, {}, programs);
    });
  });
}

// For requests that may not start anything.
void Planner::look_only(Keyed keyed, KeyMaterial request, const Reply& reply) {
  JobSpec spec;
  spec.material = std::move(keyed.material);
  spec.request = std::move(request);
  hooks_.fleet->look(spec.material, [this, spec, reply](std::optional<FleetPlan> found) {
    take(spec, std::move(found), [this, spec, reply](const std::optional<JobResult>& result) {
      if (!result) return fail(reply, may_start(spec.material.key(), wire::kGetNoStart), spec.material.key());
      reply(from_job(*result, wire::Origin::hit));
    });
  });
}

std::optional<uint64_t> Planner::next_ns() const {
  std::optional<uint64_t> next = measures_.next_ns();
  const std::optional<uint64_t> fleet = hooks_.fleet ? hooks_.fleet->next_ns() : std::nullopt;
  if (fleet) next = std::min(next.value_or(UINT64_MAX), *fleet);
  return next;
}

void Planner::expire() {
  measures_.expire();
  if (hooks_.fleet) hooks_.fleet->expire();
}

}  // namespace quern
