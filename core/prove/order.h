// Which events of a block happen before which, or of a pair of blocks that signal each other's mbarriers:
// barriers, mbarriers with their phases and bytes, groups of copies and of products, gone through one by one.
// Nothing is sampled: threads that come to an event are counted, each role is held up in turn while the
// others run on.
#pragma once

#include <bitset>
#include <map>
#include <memory>

#include "core/prove/trace.h"

namespace quern::proof {

using Threads = std::bitset<1024>;

// What a thread knows to have happened, of all threads of each role: events up to a number, and phases of
// mbarriers that have ended.
struct Clock {
  std::vector<int> done;          // by role, those of the other block behind those of this one
  std::map<int64_t, int> phases;  // by the mbarrier's place, with its block
  void join(const Clock& other);
};

struct Ordered {
  // Of an event with an access.
  struct Moment {
    int event = 0,
        end = 0;  // numbers of the event, and of the one with which the access is over for its thread
    int role = 0;
    bool by_other = false;                        // the other block does it to this one's memory
    std::shared_ptr<const Clock> clock, cluster;  // known to all threads that come to it
    int64_t barrier = -1;                         // of a copy by TMA: where it counts,
    int phase = 0;                                // and the phase that ends with it
    std::shared_ptr<const Threads> threads;       // that come to it
  };
  std::vector<Moment> moments;
  // Of a role, by the number of the event: the threads of those warps that come.
  std::map<std::pair<int, int>, Threads> warp_barriers;
  Clock cluster_end;  // what all threads of role 0 know of the cluster when it ends

  struct Fault {
    std::string what;
    int event = -1;
    bool surely = true;  // else: not understood
  };
  std::optional<Fault> fault;

  // Whether `a` is over before `b` begins, whichever two threads of the block do them.
  bool before(const Trace& trace, const Moment& a, const Moment& b) const;
};

// Of a block, or of one of a pair, with this rank. What blocks do to each other's memory is seen from this
// one.
Ordered order_events(const Trace& trace, int threads, int blocks = 1, int rank = 0);

}  // namespace quern::proof
