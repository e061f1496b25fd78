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

struct PlanRequest {
  std::string graph, target;
  uint32_t numerics = 0;
  std::string constraints;  // of the search
};

struct PlanAnswer {
  Status status;  // PENDING: a job is queued or running, `state` says which
  std::optional<Hash128> key;
  wire::JobState state = wire::JobState::none;
  std::string plan;
  uint64_t generation = 0;
  Tier tier = Tier::baseline;
  wire::Origin origin = wire::Origin::hit;
  Status stored;  // why it is not stored
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

  explicit Planner(Hooks hooks);

  // Replies at once or later; not at all if `interest` has expired by then. `flags` are kGet bits. A plan
  // below the tier `wanted` is held back as long as a search for a better one is under way. The key, if it is
  // known.
  std::optional<Hash128> get(const PlanRequest& request, uint32_t flags, uint8_t priority, uint8_t wanted,
                             std::weak_ptr<void> interest, Reply reply);
  // The plan of a key: at once if it is stored, else when its job ends.
  void wait(const Hash128& key, uint8_t wanted, std::weak_ptr<void> interest, Reply reply);
  // Measures the programs of a stored plan now, after the search for them if there was none that came to its
  // end. Replies when that is done; not at all if `interest` has expired by then.
  void tune(const TuneRequest& request, std::weak_ptr<void> interest, OnProgress on_progress,
            TuneReply reply);
  // What get() would do; ERROR when the request itself is no good.
  Result<wire::ExplainReply> explain(const PlanRequest& request);
  wire::JobStatusReply status(const Hash128& key) const;
  // Forgets failures and quarantine of a key.
  void forgive(const Hash128& key);

  // To be called after each change of Workers::compiler().
  void compiler_changed();
  // And of Workers::gpus().
  void gpus_changed() { measures_.gpus_changed(); }
  // When something that was put off is due, and doing it.
  std::optional<uint64_t> next_ns() const { return measures_.next_ns(); }
  void expire() { measures_.expire(); }
  // Refuses new jobs from here on and drops those that nobody waits for.
  void drain();
  bool idle() const;
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
  struct Keyed {
    std::string canonical;
    KeyMaterial material;
  };

  Status check_request(const PlanRequest& request) const;
  KeyMaterial request_material(const PlanRequest& request) const;
  Result<Keyed> make_key(const PlanRequest& request) const;
  bool answer_from_store(Result<StoredPlan> found, uint32_t flags, uint8_t wanted, const Reply& reply);
  void hold(uint8_t wanted, std::weak_ptr<void> interest, Reply reply, std::shared_ptr<PlanAnswer> answer);
  void measure(const TuneRequest& request, std::weak_ptr<void> interest, OnProgress on_progress,
               TuneReply reply);
  wire::TuneReply tune_reply(const JobResult& result) const;
  void search_ended(const JobResult& result);
  Reply until(uint8_t wanted, std::weak_ptr<void> interest, Reply reply);
  std::optional<Hash128> find_or_make(const PlanRequest& request, uint32_t flags, uint8_t priority,
                                      uint8_t wanted, std::weak_ptr<void> interest, Reply reply);
  void explain_search(wire::ExplainReply& reply) const;
  // OK when a job for the key may start.
  Status may_start(const Hash128& key, uint32_t flags);
  std::optional<Hash128> start_job(const PlanRequest& request, Keyed keyed, uint32_t flags, uint8_t priority,
                                   std::weak_ptr<void> interest, Reply reply);
  std::optional<Hash128> fail(const Reply& reply, Status status, std::optional<Hash128> key = {});
  PlanAnswer from_job(const JobResult& result, wire::Origin origin) const;
  void publish(const JobSpec& spec, JobResult result, std::function<void(JobResult)> done);
  static Status check_plan(const std::string& encoded, const std::string& target);
  void settle(JobResult& result, const KeyMaterial& material, const Result<PutOutcome>& outcome);
  void job_ended(const JobResult& result);
  std::string why_missing(const Keyed& keyed, const wire::JobStatusReply& where) const;
  std::string nearest_plan(const KeyMaterial& material) const;

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
  std::vector<std::function<void()>> deferred_;  // requests that came before the compiler was known
};

}  // namespace quern
