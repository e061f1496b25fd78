// Barriers of some of a block's threads (PTX ISA, "bar.sync a, b" and "bar.arrive a, b"): number a, for b threads, who are
// the first that come.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace quern::emulated {

class NamedBarriers {
 public:
  using Name = std::pair<int, int>;  // rank of the block in its cluster, number

  void begin_cluster() { waiting_.clear(); }
  // The threads that wait there, once `thread`, which itself waits or not, is the last to come; none before. `violation` is
  // set when the barrier has no such number or count of threads, or has another count for those who have come.
  std::vector<int> arrive(Name name, int count, int block_threads, int thread, bool waits,
                          std::string& violation);

 private:
  struct Waiting {
    int count;
    std::vector<int> threads, waiting;  // all who have come, and who waits
  };
  std::map<Name, Waiting> waiting_;
};

}  // namespace quern::emulated
