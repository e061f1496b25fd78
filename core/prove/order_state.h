// What is going on where the order of events is followed: roles, mbarriers, groups of copies and products.
#pragma once

#include "core/prove/order.h"

namespace quern::proof {

// What a role's threads have issued and not waited for, in groups.
struct Groups {
  std::vector<size_t> open;  // moments
  std::vector<std::vector<size_t>> closed;
  Threads issuers;  // of what there is

  bool empty() const { return open.empty() && closed.empty(); }
  void issue(size_t moment, const Threads& threads) {
    if (empty()) issuers.reset();
    issuers |= threads;
    open.push_back(moment);
  }
  void commit() {
    closed.push_back(std::move(open));
    open.clear();
  }
  std::vector<size_t> all() const {
    std::vector<size_t> out = open;
    for (const std::vector<size_t>& group : closed) out.insert(out.end(), group.begin(), group.end());
    return out;
  }
};

struct Role {
  struct Known {
    Threads threads;
    Clock clock;
  };
  size_t next = 0;  // of its events
  bool begun = false;
  std::vector<Known> known;        // for the first: of all its threads
  Clock cluster, cluster_arrived;  // of role 0
  int warp_barrier = -1;
  std::map<ir::Async, Groups> groups;  // of an mbarrier: copies that do not yet count at it

  Clock everything() const {
    Clock out;
    for (const Known& each : known) out.join(each.clock);
    return out;
  }
  void learn(const Threads& threads, const Clock& clock) {
    for (Known& each : known)
      if (each.threads == threads) return each.clock.join(clock);
    known.push_back({threads, clock});
  }
};

struct Barrier {
  int64_t arrivals = 0, missing = 0, bytes = 0;
  int phase = 0, event = -1;
  Clock coming;
  std::vector<Clock> ended;  // what the end of each phase tells

  void end_phase() {
    if (missing > 0 || bytes != 0) return;
    ++phase;
    missing = arrivals;
    ended.push_back(std::move(coming));
    coming = {};
  }
};

}  // namespace quern::proof
