// Looks for better plans in the background: which keys are worth a search, what becomes of it, and that it is
// not done again. Loop-free, on the daemon's thread only.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/store.h"
#include "daemon/jobs.h"
#include "daemon/log.h"
#include "daemon/workers.h"

namespace quern {

class Searches {
 public:
  struct Hooks {
    Store* store = nullptr;  // null: nothing is searched, as it could not be kept
    Workers* workers = nullptr;
    Post post;
    Log* log = nullptr;
    std::function<uint64_t()> now_ns;
    size_t max_queued = 4096;
    // A key's generation has risen.
    std::function<void(const Hash128& key, uint64_t generation, Tier tier)> better;
  };

  explicit Searches(Hooks hooks);

  // Somebody uses the plan that stands under this material. Queues a search for a better one, unless there
  // was one already; at most once for a key while the daemon runs.
  void consider(const Hash128& key, std::string_view material, Tier stands);
  // Waits for the search of a key to end, well or not; false when there is none.
  bool join(const Hash128& key, Jobs::Waiter waiter) { return jobs_.join(key, std::move(waiter)); }
  wire::JobState state(const Hash128& key) const { return jobs_.state(key); }
  // The plan of the key is about to be removed: a search that runs for it is in vain.
  void forget(const Hash128& key);

  // What failed for want of the right compiler may be looked at again.
  void compiler_changed() { considered_.clear(); }
  // Nothing is started from here on; whoever waits is told. What runs is left to end with its process.
  void drain();

  Jobs::Counts counts() const { return jobs_.counts(); }
  uint64_t published() const { return published_; }

 private:
  void publish(const JobSpec& spec, JobResult result, std::function<void(JobResult)> done);
  Status check_plan(const JobSpec& spec, const JobResult& result) const;
  uint32_t worker_died(const Hash128& key) { return ++deaths_[key]; }
  void ended(const JobResult& result);

  const Hooks hooks_;
  Jobs jobs_;
  std::unordered_set<Hash128> considered_;
  std::unordered_map<Hash128, uint32_t> deaths_;  // of workers, on jobs that are not over
  uint64_t published_ = 0;
  bool draining_ = false;
};

}  // namespace quern
