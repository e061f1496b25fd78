// Finds the plan of a request or has it made: front index, key, store, job. Loop-free, on the daemon's thread
// only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "capi/wire/messages.h"
#include "daemon/jobs.h"
#include "daemon/log.h"
#include "daemon/measures.h"
#include "daemon/searches.h"
#include "daemon/setbacks.h"
#include "daemon/workers.h"

namespace quern {

class Fleet;
struct FleetPlan;

struct PlanRequest {
  std::string graph, target;
  uint32_t numerics = 0;
  std::string constraints;  // of the search
};

struct PlanAnswer;

// A question for a plan, with what it takes to answer it.
struct PlanAsk {
  PlanRequest request;
  uint32_t flags = 0;  // kGet bits
  uint8_t wanted = 0;  // tier: a plan below it is held back while a search for a better one is under way
  Caller caller;
  std::weak_ptr<std::optional<Hash128>> key;  // filled in as soon as it is known, if it is still there
  std::function<void(PlanAnswer)> reply;
};

struct PlanAnswer {
  Status status;  // PENDING: a job is queued or running, `state` says which
  std::optional<Hash128> key;
  wire::JobState state = wire::JobState::none;
  std::shared_ptr<const std::string> plan;
  uint64_t generation = 0;
  Tier tier = Tier::baseline;
  wire::Origin origin = wire::Origin::hit;
  Status stored;           // why it is not stored
  bool elsewhere = false;  // of a hit: it was not in this daemon's store
  uint64_t queue_ns = 0, emit_ns = 0, compile_ns = 0;
};

class Planner {
 public:
  using Reply = std::function<void(PlanAnswer)>;
  struct Hooks {
    Store* store = nullptr;  // may be null: then nothing is kept
    Status no_store;         // why it is null
    Workers* workers = nullptr;
    Post post;
    Aside* aside = nullptr;  // where graphs are parsed
    Log* log = nullptr;
    std::function<uint64_t()> now_ns;
    size_t max_queued = 4096;
    bool search = true;  // for better plans than baselines
    SearchLimits limits;
    MeasureSettings measuring;
    // A key's generation has risen.
    std::function<void(const Hash128& key, uint64_t generation, Tier tier)> better;
    // The job of a key ended without a plan.
    std::function<void(const Hash128& key)> failed;
    Fleet* fleet = nullptr;  // the second level, if there is one
  };
  struct TuneRequest {
    Hash128 key;
    uint64_t budget_ms = 0;  // 0: that of the settings
    int gpu = -1;            // -1: any of the plan's target
  };
  using TuneReply = std::function<void(Result<wire::TuneReply>)>;
  using OnProgress = std::function<void(const wire::JobProgress&)>;
  struct Counts {
    uint64_t hits = 0, front_hits = 0, misses = 0, shared = 0, errors = 0;
  };

  // To copy, hash and compare a longer text takes longer than others should wait.
  static constexpr size_t kLongText = 32 << 10;

  explicit Planner(Hooks hooks);

  // The plan of a request that was answered not long ago, of whatever tier; null if it is not in memory, as
  // that of no request is that was refused. Quick.
  std::shared_ptr<const StoredPlan> find_recent(const PlanRequest& request, uint32_t flags,
                                                const Asker& asker);
  static PlanAnswer stored_answer(std::shared_ptr<const StoredPlan> stored);
  // Each replies at once or later; not at all if the caller's interest has left by then.
  void get(const std::shared_ptr<const PlanAsk>& ask);
  // The plan of a key: at once if it is stored, else when its job ends.
  void wait(const Hash128& key, uint8_t wanted, const Caller& caller, Reply reply);
  // Measures the programs of a stored plan now, after the search for them if there was none that came to its
  // end.
  void tune(const TuneRequest& request, const Caller& caller, OnProgress on_progress, TuneReply reply);
  // What get() would do; an error when the request itself is no good.
  void explain(PlanRequest request, const Caller& caller,
               std::function<void(Result<wire::ExplainReply>)> reply);
  // Nobody waits behind this interest any more.
  void leave(const void* interest);
  // Nor behind any of the client's; `heir` pays for what it has queued and nobody waits for.
  void leave(const Asker& asker, const std::shared_ptr<Account>& heir);
  wire::JobStatusReply status(const Hash128& key) const;
  // Forgets failures and quarantine of a key.
  void forgive(const Hash128& key);

  // Stores a plan that was made elsewhere, unless one as good is there, and tells who has subscribed.
  void import(PlanPut put, std::function<void(const Result<PutOutcome>&)> done);
  // The same for one from the fleet's server, under nobody's words.
  void import(FleetPlan plan);
  // The key of a request in the front index.
  static KeyMaterial request_material(const PlanRequest& request, const std::string& toolchain);
  // Drops the queued jobs of these keys, searches included, that nobody waits for. The number of keys.
  size_t drop_queued(const std::vector<Hash128>& keys);

  // To be called after each change of Workers::compiler().
  void compiler_changed();
  // And of Workers::gpus().
  void gpus_changed() { measures_.gpus_changed(); }
  // When something that was put off is due, and doing it.
  std::optional<uint64_t> next_ns() const;
  void expire();
  // Why whoever waits behind this interest still does, where more is known than that a job goes on.
  std::string why_late(const void* interest) const { return measures_.why_late(interest); }
  // Refuses new jobs from here on and drops those that nobody waits for.
  void drain();
  bool idle() const;
  // The same, and nothing is searched or measured either.
  bool quiet() const;
  // Ends what is still queued with CANCELLED.
  void give_up();

  // The fingerprint that keys are made with: the compiler's, else the one last seen; empty if there never was
  // one.
  const std::string& toolchain() const { return toolchain_; }
  Counts counts() const { return counts_; }
  Jobs::Counts job_counts() const { return jobs_.counts(); }
  const Searches& searches() const { return searches_; }
  const Measures& measures() const { return measures_; }

 private:
  struct Canonical {
    std::string graph, constraints;  // texts
  };
  struct Keyed {
    std::string canonical;
    KeyMaterial material;
  };
  struct Deferred {
    std::weak_ptr<void> interest;
    std::function<void()> run;
  };
  static void add_request(KeyMaterial& head, const PlanRequest& request);
  using Ask = std::shared_ptr<const PlanAsk>;
  // A hit has been seen: it counts, and better programs may be looked for.
  void note_hit(const StoredPlan& stored, uint32_t flags, uint8_t wanted, const Asker& asker);
  using Found = Result<std::shared_ptr<const StoredPlan>>;

  // A request that is not in the front index, or was not looked for there yet.
  struct Looked {
    std::optional<Found> front;
    KeyMaterial request;
    std::string toolchain;  // that `request` is made with
    Result<Canonical> canonical = Status(ErrorCode::INTERNAL, "not parsed");
  };

  static Status check_request(const PlanRequest& request);
  // On any thread.
  static Result<Canonical> canonicalise(const PlanRequest& request);
  static std::string nearest_plan(Store& store, const KeyMaterial& material);
  Keyed make_key(const PlanRequest& request, const Canonical& canonical) const;
  bool answer_from_store(const Found& found, uint32_t flags, uint8_t wanted, const Asker& asker,
                         const Reply& reply);
  void hold(uint8_t wanted, const Caller& caller, Reply reply, std::shared_ptr<PlanAnswer> answer);
  void measure(const TuneRequest& request, const Caller& caller, OnProgress on_progress, TuneReply reply);
  wire::TuneReply tune_reply(const JobResult& result) const;
  void search_ended(const JobSpec& spec, const Asker& asker, const JobResult& result);
  Reply until(uint8_t wanted, const Caller& caller, Reply reply);
  void find_or_make(const Ask& ask, const Reply& reply);
  bool answer_front(const Ask& ask, const Found& found, const Reply& reply);
  void make(const Ask& ask, const std::shared_ptr<Looked>& looked, const Reply& reply);
  wire::ExplainReply explain_key(const PlanRequest& request, const Keyed& keyed, const std::string& nearest);
  void explain_search(wire::ExplainReply& reply) const;
  // OK when a job for the key may start.
  Status may_start(const Hash128& key, uint32_t flags);
  void start_job(const Ask& ask, Keyed keyed, KeyMaterial request, const Reply& reply);
  void fail(const Reply& reply, Status status, std::optional<Hash128> key = {});
  PlanAnswer from_job(const JobResult& result, wire::Origin origin) const;
  void publish(const JobSpec& spec, JobResult result, std::function<void(JobResult)> done);
  static Status check_plan(const std::string& encoded, const std::string& target);
  // True when the store has it now as the plan of the key.
  bool settle(JobResult& result, const KeyMaterial& material, const Result<PutOutcome>& outcome);
  void job_ended(const JobSpec& spec, const Asker& asker, const JobResult& result);
  void made_better(const Hash128& key, uint64_t generation, Tier tier);
  void drop_foreign_time(PlanPut& put) const;
  bool brings_programs(const PlanPut& put) const;
  std::optional<Jobs::Elsewhere> elsewhere(wire::JobKind kind);
  bool serves(const JobSpec& spec, const FleetPlan& plan, bool waited) const;
  void settled(const JobSpec& spec, const JobResult& result, bool stored);
  void take(const JobSpec& spec, std::optional<FleetPlan> found,
            const std::function<void(std::optional<JobResult>)>& done);
  void look_only(Keyed keyed, KeyMaterial request, const Reply& reply);
  std::string why_missing(const wire::JobStatusReply& where, const std::string& nearest) const;

  Hooks hooks_;
  Setbacks setbacks_;
  Jobs jobs_;  // baselines
  Searches searches_;
  Measures measures_;
  // As compiler_changed() found it, so that it and the toolchain of keys always belong together: the workers'
  // own state can be a step ahead.
  CompilerState compiler_;
  std::string toolchain_;
  bool draining_ = false;
  Counts counts_;
  // Where requests are put together that are looked for in memory; `head` bytes of it are the same for all.
  struct {
    std::string toolchain;
    KeyMaterial material;
    size_t head = 0;
  } front_;
  std::vector<Deferred> deferred_;  // requests that came before the compiler was known
};

}  // namespace quern
