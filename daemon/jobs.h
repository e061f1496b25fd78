// Jobs of one kind: at most one for a key, however many wait for it; what somebody waits for runs before what
// nobody does, in fair turns of users and clients; dead workers are retried once. Loop-free: everything
// happens on the daemon's thread, in the calls below and in the completions of Workers and publish.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/store.h"
#include "capi/wire/messages.h"
#include "core/base/hash.h"
#include "daemon/aside.h"
#include "daemon/fair_queue.h"
#include "daemon/workers.h"

namespace quern {

struct JobResult {
  Status status;  // why there is no plan
  Hash128 key;
  std::string plan;
  uint64_t generation = 0;  // 0: not stored
  Tier tier = Tier::baseline;
  bool published = false;  // of a search: with all that it has found
  Status stored;           // why it is not stored
  uint64_t queue_ns = 0, emit_ns = 0, compile_ns = 0, search_ns = 0;
  uint64_t modelled_ns = 0;              // of a searched plan, by the model
  Findings findings;                     // of a search
  std::string programs;                  // of a search: those worth measuring, encoded
  bool timed_out = false;                // a search that may find more with more time
  std::vector<wire::TimingRow> timings;  // of a measuring
  std::string device;                    // on which it was done
  bool elsewhere = false;                // it was made, by somebody else
};

// An interest waits for one job of a kind.
class Jobs {
 public:
  struct Waiter {
    Caller caller;
    std::function<void(const JobResult&)> done;
    std::function<void(const wire::JobProgress&)> progress = {};  // before that; may be empty
  };

  // Where a job's result may come from without a worker of this daemon, and who else brings it. Both
  // functions call back later.
  struct Elsewhere {
    enum class Turn { mine, others, again };  // others: a second call follows; again: claim again
    std::function<bool()> up;                 // false: nothing is asked of the rest
    std::function<void(const JobSpec&, std::function<void(std::optional<JobResult>)>)> look;  // may be empty
    // A result, or whose turn it is to make it.
    std::function<void(const JobSpec&, std::function<void(Turn, std::optional<JobResult>)>)> claim;
  };

  // The outside world. `publish` fills in generation, tier and stored, and calls back on the daemon's thread
  // when the plan is durable or could not be stored.
  struct Hooks {
    Workers* workers = nullptr;
    std::function<void(const JobSpec&, JobResult, std::function<void(JobResult)>)> publish;
    // A worker died on this key; tells how often one has died on it, this time included.
    std::function<uint32_t(const Hash128& key, const std::string& how)> worker_died;
    // Before its waiters are told.
    std::function<void(const JobSpec&, const Asker&, const JobResult&)> ended;
    std::function<uint64_t()> now_ns;                                             // any steady clock
    size_t max_queued = 4096;                                                     // of one asker
    std::function<void(const JobSpec&, const wire::JobProgress&)> progress = {};  // before waiters see it
    std::optional<Elsewhere> elsewhere = {};
  };

  struct Counts {
    uint64_t done = 0, failed = 0, retried = 0;
    size_t queued = 0, running = 0;
  };

  explicit Jobs(Hooks hooks) : hooks_(std::move(hooks)) {}

  // Joins the job of spec's key, or starts one. A job without a waiter is a background job of its asker:
  // those run after all others. BUSY when the asker has too much queued. `joined` says whether there was a
  // job already.
  Status ask(JobSpec spec, const Asker& asker, Waiter waiter, bool& joined);
  // Waits for a job that exists; false when there is none.
  bool join(const Hash128& key, Waiter waiter);
  // Nobody waits behind this interest any more.
  void leave(const void* interest);
  // Nor behind any of the client's. What it has queued waits on at its user's expense, if that has room.
  void leave(const Asker& asker, const std::shared_ptr<Account>& heir);

  wire::JobState state(const Hash128& key) const;  // none, queued or running
  Counts counts() const;
  // Starts queued jobs while workers are free. Called by ask() and at the end of each job; the owner calls it
  // when a worker becomes free in another way.
  void pump();
  // Drops every queued job that nobody waits for, or those that `which` picks. The number of them.
  size_t drop_background(const std::function<bool(const Hash128&)>& which = {});
  // Ends every queued job, or those that `which` picks, with `status`.
  void fail_queued(const Status& status, const std::function<bool(const JobSpec&)>& which = {});
  // Tells everybody who waits, for running jobs too, that there will be no result.
  void dismiss_waiters(const Status& status);

 private:
  using Queue = FairQueue<Hash128>;
  struct Waiting {
    Waiter waiter;
    Queue::Ticket ticket;
  };
  struct Job {
    JobSpec spec;
    Queue::Ticket ticket;  // of whoever asked first
    Charge charge;         // to it
    bool running = false;  // or looked for elsewhere: in no queue
    bool retried = false;
    uint64_t asked_ns = 0, queue_ns = 0;
    std::unordered_map<const void*, Waiting> waiters;  // by their interest
  };

  Status may_queue(const JobSpec& spec, const Asker& asker, Charge& charge) const;
  void add_waiter(Job& job, const Hash128& key, Waiter waiter);
  std::vector<Waiter> take_waiters(Job& job);
  // Into the queues where it waits, and out of them.
  void enqueue(const Job& job, const Hash128& key);
  void dequeue(const Job& job);
  void unlist(const Job& job, const Hash128& key);
  std::unique_ptr<Job> take(const Hash128& key);
  std::vector<Hash128> queued(const std::function<bool(const Job&)>& which) const;
  // Jobs that need the same workers. Only for a GPU does it depend on the job whether a worker is free.
  using Lane = std::pair<std::string, int>;
  static Lane lane_of(const JobSpec& spec);
  Queue::Turn start(const Hash128& key, std::set<Lane>& full);
  void start_claimed(std::set<Lane>& full);
  void look_elsewhere(const Hash128& key);
  bool claim(const Hash128& key);
  void claimed(const Hash128& key, Elsewhere::Turn turn, const std::optional<JobResult>& found);
  bool run(const Hash128& key);
  void leave_queue(Job& job, const Hash128& key);
  void queue_again(Job& job, const Hash128& key);
  void progressed(const Hash128& key, const wire::JobProgress& progress);
  void finish_compile(const Hash128& key, Result<wire::JobDone> done);
  void finish(const Hash128& key, const JobResult& result);
  bool retry_after_death(Job& job, const Hash128& key, Status& status);
  bool retry(Job& job, const Hash128& key);  // once

  Hooks hooks_;
  std::unordered_map<Hash128, std::unique_ptr<Job>> jobs_;
  std::unordered_map<const void*, Hash128> waits_;                           // interests, and for what
  std::map<std::pair<uid_t, ClientId>, std::unordered_set<Hash128>> asked_;  // queued jobs of an asker
  Queue foreground_, background_;
  std::deque<Hash128> claimed_;  // from elsewhere: first for the next workers
  std::map<Lane, size_t> claiming_;
  uint64_t next_order_ = 0;
  Counts counts_;
};

}  // namespace quern
