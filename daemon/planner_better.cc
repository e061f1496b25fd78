// Waiting for a better plan than the one that stands, and tuning, which makes one.
#include "core/optimize/program.h"
#include "daemon/planner.h"

namespace quern {

// A search or a measuring that fails leaves what stands as the answer.
Planner::Reply Planner::until(uint8_t wanted, const Caller& caller, Reply reply) {
  if (wanted <= static_cast<uint8_t>(Tier::baseline)) return reply;
  return [=, this](PlanAnswer answer) {
    if (!answer.status.ok()) return reply(std::move(answer));
    hold(wanted, caller, reply, std::make_shared<PlanAnswer>(std::move(answer)));
  };
}

// Until the plan is of the tier or nothing is under way any more that could make it so.
void Planner::hold(uint8_t wanted, const Caller& caller, Reply reply, std::shared_ptr<PlanAnswer> answer) {
  const auto again = [=, this](const JobResult& result) {
    if (auto stands = hooks_.store->peek(result.key); stands.ok()) {
      answer->plan = std::make_shared<const std::string>(std::move(stands->plan));
      answer->generation = stands->generation;
      answer->tier = stands->tier;
    }
    hold(wanted, caller, reply, answer);
  };
  const bool waits =
      static_cast<uint8_t>(answer->tier) < wanted && !draining_ &&
      (searches_.join(*answer->key, {caller, again}) || measures_.join(*answer->key, {caller, again}));
  if (!waits) reply(std::move(*answer));
}

// New programs are measured, and so are those of a plan that never was.
void Planner::search_ended(const JobSpec& spec, const Asker& asker, const JobResult& result) {
  if (hooks_.store) measures_.consider(result.key, spec.material.bytes(), asker, !result.programs.empty());
}

// ---- tuning
// -------------------------------------------------------------------------------------------------

void Planner::tune(const TuneRequest& request, const Caller& caller, OnProgress on_progress,
                   TuneReply reply) {
  if (!hooks_.store) return reply(hooks_.no_store);
  const auto stands = hooks_.store->peek(request.key);
  if (!stands) return reply(stands.status());
  // A search that came to its end is not done again; the others get their part of the budget.
  searches_.consider(request.key, stands->material, stands->tier, caller.asker, Searches::Wish::tuning,
                     request.budget_ms / 2);
  const auto searched = [=, this](const JobResult&) {
    if (draining_) return reply(Status(ErrorCode::CANCELLED, "the daemon is about to exit"));
    measure(request, caller, on_progress, reply);
  };
  if (!searches_.join(request.key, {caller, searched})) measure(request, caller, on_progress, reply);
}

void Planner::measure(const TuneRequest& request, const Caller& caller, OnProgress on_progress,
                      TuneReply reply) {
  Jobs::Waiter waiter{caller,
                      [this, reply](const JobResult& result) {
                        if (result.status.ok())
                          reply(tune_reply(result));
                        else
                          reply(result.status);
                      },
                      on_progress};
  if (Status status = measures_.tune(request.key, request.budget_ms, request.gpu, std::move(waiter));
      !status.ok())
    reply(status);
}

wire::TuneReply Planner::tune_reply(const JobResult& result) const {
  wire::TuneReply reply;
  reply.key = result.key;
  reply.device = result.device;
  reply.reason = result.findings.reason;
  if (const auto stands = hooks_.store->peek(result.key); stands.ok()) {
    reply.generation = stands->generation;
    reply.tier = static_cast<uint8_t>(stands->tier);
  }
  for (const wire::TimingRow& row : result.timings) {
    ++(row.refusal.empty() ? reply.timed : reply.refused);
    if (!row.refusal.empty() || row.cold_ps == 0) continue;
    if (reply.best_ps == 0 || row.cold_ps < reply.best_ps) reply.best_ps = row.cold_ps;
    if (row.program == Program().name()) reply.baseline_ps = row.cold_ps;
  }
  return reply;
}

}  // namespace quern
