// What takes longer than the daemon's thread has time for (parsing above all) runs on threads of its own, in
// fair turns of users and clients.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "daemon/fair_queue.h"

namespace quern {

// Who asks, for as long as `interest` lives, or until it leaves.
struct Caller {
  Asker asker;
  std::weak_ptr<void> interest;
};

class Aside {
 public:
  using Task = std::function<void()>;
  // Runs `work` on another thread, then `done` on the daemon's.
  using Run = std::function<void(Task work, Task done)>;

  // `at_once`: how many of them may run at a time.
  Aside(Run run, unsigned at_once) : run_(std::move(run)), at_once_(at_once) {}

  // Neither is run, or not the second one, once the caller's interest has left. An interest has one thing
  // done at a time.
  void ask(const Caller& caller, Task work, Task done);
  void leave(const void* interest);
  void leave(const Asker& asker) { queue_.leave(asker.user, asker.client); }

 private:
  struct Job {
    Task work, done;
    std::weak_ptr<void> interest;
    FairQueue<const void*>::Ticket ticket;
  };
  void pump();
  FairQueue<const void*>::Turn start(const void* interest);

  const Run run_;
  const unsigned at_once_;
  unsigned running_ = 0;
  uint64_t next_order_ = 0;
  std::unordered_map<const void*, Job> jobs_;  // by their interest
  FairQueue<const void*> queue_;
};

}  // namespace quern
