// Looks for better plans in the background: which keys are worth a search, what is done with its result, and
// that it is not done again. Loop-free, on the daemon's thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/store.h"
#include "daemon/jobs.h"
#include "daemon/log.h"
#include "daemon/workers.h"

namespace quern {

// Of the first search for a key; each that ran out of time doubles them for the next, up to a bound.
struct SearchLimits {
  uint64_t search_ms = 10000;    // for finding programs
  uint64_t optimize_ms = 25000;  // with judging and compiling them
};

class Searches {
 public:
  // From a search that ran out of time to the next one, doubled each time; a caller who waits for a better
  // plan does not wait for this.
  static constexpr uint64_t kRetryNs = 60'000'000'000;
  static constexpr uint32_t kMostDoublings = 3;
  // Programs that are compiled for a measuring elsewhere, where there is no GPU of the target.
  static constexpr uint32_t kKeep = 8;

  struct Hooks {
    Store* store = nullptr;  // null: nothing is searched, as it could not be kept
    Workers* workers = nullptr;
    Post post;
    Log* log = nullptr;
    std::function<uint64_t()> now_ns;
    size_t max_queued = 4096;
    SearchLimits limits;
    // A key's generation has risen.
    std::function<void(const Hash128& key, uint64_t generation, Tier tier)> better;
    // A search has ended, well or not; before whoever waits for it is told.
    std::function<void(const JobSpec&, const Asker&, const JobResult&)> ended;
    std::optional<Jobs::Elsewhere> elsewhere = {};
    // A job that may be done elsewhere is over, and what it has found, if that lasts, is stored.
    std::function<void(const JobSpec&, const JobResult&, bool stored)> settled = {};
  };

  explicit Searches(Hooks hooks);

  // What somebody wants who uses a plan: only that, to wait for a better one, or to have its programs
  // measured.
  enum class Wish : uint8_t { use, better, tuning };

  // Somebody uses the plan that stands under this material. Queues a search for a better one, unless there
  // was one already that came to its end. One that ran out of time is continued after a while, or at once for
  // somebody who wants more than to use it. Where no programs are stored, as in caches of earlier versions,
  // tuning has them searched again. `least_ms`: the least of all the time that it gets.
  void consider(const Hash128& key, std::string_view material, Tier stands, const Asker& asker,
                Wish wish = Wish::use, uint64_t least_ms = 0);
  // Waits for the search of a key to end, well or not; false when there is none.
  bool join(const Hash128& key, Jobs::Waiter waiter) { return jobs_.join(key, std::move(waiter)); }
  void leave(const void* interest) { jobs_.leave(interest); }
  void leave(const Asker& asker, const std::shared_ptr<Account>& heir) { jobs_.leave(asker, heir); }
  wire::JobState state(const Hash128& key) const { return jobs_.state(key); }
  // The plan of the key is about to be removed: a search that runs for it is in vain.
  void forget(const Hash128& key);

  // Those that wait for their turn, and nobody for them. The number of them.
  size_t drop_queued(const std::function<bool(const Hash128&)>& which) { return jobs_.drop_background(which); }

  // What failed for want of the right compiler may be looked at again.
  void compiler_changed() { considered_.clear(); }
  // Nothing is started from here on; whoever waits is told. What runs is left to end with its process.
  void drain();

  Jobs::Counts counts() const { return jobs_.counts(); }
  uint64_t published() const { return published_; }

 private:
  bool is_due(const Hash128& key, Wish wish);
  bool lacks_programs(const Hash128& key) const;
  void timed_out(const Hash128& key, uint32_t timeouts);
  void publish(const JobSpec& spec, JobResult result, std::function<void(JobResult)> done);
  uint32_t worker_died(const Hash128& key) { return ++deaths_[key]; }
  void ended(const JobSpec& spec, const Asker& asker, const JobResult& result);
  void remember(const JobSpec& spec, const JobResult& result);
  void settled(const JobSpec& spec, const JobResult& result, bool stored);

  const Hooks hooks_;
  Jobs jobs_;
  std::unordered_map<Hash128, uint64_t> considered_;  // and the time from which they may be again
  std::unordered_map<Hash128, uint32_t> deaths_;      // of workers, on jobs that are not over
  uint64_t published_ = 0;
  bool draining_ = false;
};

}  // namespace quern
