// What is going on where the order of events is followed: roles, mbarriers, groups of copies and products.
#pragma once

#include "core/prove/order.h"

namespace quern::proof {

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

// Copies by cp.async, products by wgmma, stores by TMA: those of a role that are not waited for.
struct Groups {
  std::vector<size_t> open;  // moments
  std::vector<std::vector<size_t>> closed;

  bool empty() const { return open.empty() && closed.empty(); }
  void close() {
    closed.push_back(std::move(open));
    open.clear();
  }
};

}  // namespace quern::proof
