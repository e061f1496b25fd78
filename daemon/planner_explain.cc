// Why a request hits or misses, and what the search and the measuring for it came to.
#include <chrono>

#include "daemon/catalog.h"
#include "daemon/planner.h"

namespace quern {

void Planner::explain(PlanRequest request, const Caller& caller,
                      std::function<void(Result<wire::ExplainReply>)> reply) {
  if (Status status = check_request(request); !status.ok()) return reply(status);
  struct Work {
    PlanRequest request;
    Result<Canonical> canonical = Status(ErrorCode::INTERNAL, "not parsed");
    std::string nearest;
  };
  const auto work = std::make_shared<Work>();
  work->request = std::move(request);
  hooks_.aside->ask(
      caller,
      [work, store = hooks_.store, toolchain = toolchain_] {
        work->canonical = canonicalise(work->request);
        if (!work->canonical.ok() || !store) return;
        const Canonical& canonical = work->canonical.value();
        const KeyMaterial material = plan_key(canonical.graph, work->request.target, work->request.numerics,
                                              toolchain, canonical.constraints);
        if (!store->peek(material.key()).ok()) work->nearest = nearest_plan(*store, material);
      },
      [this, work, reply] {
        if (!work->canonical.ok()) return reply(work->canonical.status());
        reply(explain_key(work->request, make_key(work->request, work->canonical.value()), work->nearest));
      });
}

wire::ExplainReply Planner::explain_key(const PlanRequest& request, const Keyed& keyed,
                                        const std::string& nearest) {
  wire::ExplainReply reply;
  reply.key = keyed.material.key();
  reply.toolchain = toolchain_;
  if (auto text = print_key_material(keyed.material.bytes()); text.ok()) reply.key_text = *text;
  const wire::JobStatusReply where = status(reply.key);
  reply.state = where.state;
  reply.generation = where.generation;
  reply.tier = where.tier;
  reply.quarantine = setbacks_.quarantine(reply.key).value_or("");
  reply.hit = where.generation > 0;
  if (hooks_.store) reply.front = hooks_.store->find_request(request_material(request, toolchain_)).ok();
  reply.reason = reply.hit ? std::string("a ") + tier_name(static_cast<Tier>(where.tier)) +
                                 " plan of generation " + std::to_string(where.generation) + " is stored"
                           : why_missing(where, nearest);
  if (!reply.hit) return reply;
  explain_search(reply);
  reply.measuring = measures_.explain(reply.key);
  add_programs(*hooks_.store, reply.key, reply.programs, reply.timings);
  return reply;
}

// What the search for a better plan than the stored one came to.
void Planner::explain_search(wire::ExplainReply& reply) const {
  const auto findings = hooks_.store->findings(reply.key);
  if (findings.ok()) reply.report = findings->report;
  const wire::JobState state = searches_.state(reply.key);
  if (state != wire::JobState::none)
    reply.search = std::string("a search for a better plan is ") + wire::job_state_name(state);
  else if (!findings.ok())
    reply.search = "none yet; the next use of the plan starts one";
  else if (!findings->reason.empty())
    reply.search = "no better plan: " + findings->reason;
  else
    reply.search = "it made generation " + std::to_string(findings->generation);
  if (!findings.ok() || state != wire::JobState::none) return;
  if (findings->timeouts > 0)
    reply.search += "; it ran out of time, so a later use of the plan tries again with more";
  else if (!findings->state.empty())
    reply.search += "; it can be continued, which the next use of the plan does";
}

// The first of these that holds is the reason why Get would not answer from the cache.
std::string Planner::why_missing(const wire::JobStatusReply& where, const std::string& nearest) const {
  if (!hooks_.store) return "there is no store: " + hooks_.no_store.message();
  if (toolchain_.empty()) return "no compiler was ever found, so no plan was ever made";
  if (where.state == wire::JobState::queued || where.state == wire::JobState::running)
    return std::string("its job is ") + wire::job_state_name(where.state);
  if (!where.reason.empty()) return where.reason;
  return nearest.empty() ? "nothing like it is stored" : nearest;
}

// Of the stored plans of the same graph, which parts of the key differ.
std::string Planner::nearest_plan(Store& store, const KeyMaterial& material) {
  using Clock = std::chrono::steady_clock;
  const auto limit = Clock::now() + std::chrono::milliseconds(100);
  auto wanted = parse_key_material(material.bytes());
  if (!wanted) return "";
  std::string nearest;
  size_t fewest = wanted->size();
  Status listed = store.list([&](const StoredPlan& plan) {
    auto parts = parse_key_material(plan.material);
    if (!parts || parts->size() != wanted->size()) return true;
    std::string differences;
    size_t count = 0;
    for (size_t i = 0; i < wanted->size(); ++i) {
      if ((*parts)[i] == (*wanted)[i]) continue;
      if ((*parts)[i].tag == "graph") return Clock::now() < limit;
      ++count;
      differences += (count > 1 ? ", " : "") + std::string((*parts)[i].tag) + " \"" +
                     std::string((*parts)[i].bytes) + "\" instead of \"" + std::string((*wanted)[i].bytes) +
                     "\"";
    }
    if (count > 0 && count < fewest) {
      fewest = count;
      nearest = "this graph is stored with " + differences + " (key " + to_hex(plan.key) + ")";
    }
    return Clock::now() < limit;
  });
  return listed.ok() ? nearest : "";
}

}  // namespace quern
