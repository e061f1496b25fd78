// Has the programs of plans measured where there is a GPU of their target: which keys, when, and what is done
// with the result. Loop-free, on the daemon's thread only.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/store.h"
#include "daemon/jobs.h"
#include "daemon/log.h"
#include "daemon/workers.h"

namespace quern {

struct MeasureSettings {
  enum class When { idle, always, never };  // idle: while nobody else uses the GPU
  When when = When::idle;
  uint64_t budget_ms = 30000;
};

class Measures {
 public:
  // From a try on a GPU that was busy or lost to the next one, doubled each time, up to a bound.
  static constexpr uint64_t kRetryNs = 60'000'000'000;
  static constexpr uint32_t kMostDoublings = 4;
  static constexpr uint32_t kDeathsBeforeGivingUp = 2;

  struct Hooks {
    Store* store = nullptr;  // null: nothing is measured, as it could not be kept
    Workers* workers = nullptr;
    Post post;
    Log* log = nullptr;
    std::function<uint64_t()> now_ns;
    size_t max_queued = 4096;
    MeasureSettings settings;
    // A key's generation has risen.
    std::function<void(const Hash128& key, uint64_t generation, Tier tier)> better;
    std::optional<Jobs::Elsewhere> elsewhere = {};
    // A job that may be done elsewhere is over.
    std::function<void(const JobSpec&, const JobResult&)> settled = {};
  };

  explicit Measures(Hooks hooks);

  // The plan that stands under this material is used, or has new programs. Queues a measuring, unless one was
  // done on this GPU already.
  void consider(const Hash128& key, std::string_view material, const Asker& asker, bool new_programs = false);
  // Measures now, whoever else uses the GPU. `budget_ms` 0: that of the settings; `gpu` -1: any of the
  // target. NO_DEVICE (none of the target, or it is turned off), NOT_FOUND (no plan, no programs), BUSY.
  Status tune(const Hash128& key, uint64_t budget_ms, int gpu, Jobs::Waiter waiter);
  // Waits for the measuring of a key to end, well or not, also while it is put off; false when there is none.
  bool join(const Hash128& key, Jobs::Waiter waiter);
  void leave(const void* interest);
  void leave(const Asker& asker, const std::shared_ptr<Account>& heir) { jobs_.leave(asker, heir); }
  // One that is put off only until the GPUs are known is queued.
  wire::JobState state(const Hash128& key) const;
  // Why whoever waits behind this interest still does, and for how long; empty unless a measuring is put off.
  std::string why_late(const void* interest) const;
  // Where the measuring of a key's programs stands, in a sentence.
  std::string explain(const Hash128& key) const;
  void forget(const Hash128& key);
  // How many programs of the key have a time there, or a refusal.
  size_t measured_on(const std::string& device, const Hash128& key) const;

  // To be called after each change of Workers::gpus().
  void gpus_changed();
  // When something that was put off is due.
  std::optional<uint64_t> next_ns() const;
  void expire();
  void drain();

  Jobs::Counts counts() const { return jobs_.counts(); }
  uint64_t published() const { return published_; }

 private:
  struct PutOff {
    uint64_t at_ns = 0;  // or one of the two below
    uint32_t times = 0;
    std::string target, why;
    bool again = true;  // also if it was measured on this GPU before
  };
  struct Waiting {
    Hash128 key;
    Jobs::Waiter waiter;
  };

  static constexpr uint64_t kUnderWay = UINT64_MAX;      // it is being tried
  static constexpr uint64_t kGpuKnown = UINT64_MAX - 1;  // as soon as the GPUs are known

  bool usable() const;
  void queue(const Hash128& key, std::string_view material, const Asker& asker, bool again);
  const GpuState* gpu_for(const std::string& target, int number = -1) const;
  bool still_looking() const;
  std::string gpus_text(int number = -1) const;
  Status no_gpu(const std::string& target, int number) const;
  bool fill_in(JobSpec& spec, const Hash128& key) const;
  Result<PlanPut> check(const JobSpec& spec, const JobResult& result) const;
  Findings join_findings(const JobResult& result) const;
  void put(PlanPut put, std::function<void(const Result<PutOutcome>&)> done);
  void progressed(const JobSpec& spec, const wire::JobProgress& progress);
  void publish(const JobSpec& spec, JobResult result, std::function<void(JobResult)> done);
  void ended(const JobSpec& spec, const JobResult& result);
  void put_off(const Hash128& key, const std::string& target, const std::string& why, bool again = true);
  std::string put_off_text(const PutOff& late) const;
  void release();
  void give_up(const Hash128& key, const std::string& why);

  const Hooks hooks_;
  Jobs jobs_;
  std::vector<GpuState> gpus_;  // as gpus_changed() found them
  std::unordered_set<Hash128> considered_;
  std::unordered_map<Hash128, PutOff> put_off_;
  std::unordered_map<const void*, Waiting> waiting_;  // by their interest, for what is put off
  std::unordered_map<Hash128, uint32_t> deaths_;      // of workers, since the last that came to an end
  uint64_t published_ = 0;
  bool draining_ = false;
};

}  // namespace quern
