// When something happened in a launch, and whether one thread can know that another's access came before its
// own.
//
// Clusters run one after another (a block without a cluster is one of its own), so a counter that rises at
// every cluster's start and at every barrier (the epoch) tells clusters and the intervals between the
// barriers of a block apart. Within an interval __syncwarp orders the threads of its warp, and mbarriers and
// barriers of some threads order what knowledge.h says. Blocks of a cluster are ordered by its barrier: who
// has waited n times knows what was done before the n-th arrival; and by arrivals at each other's mbarriers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/plan.h"
#include "core/emulator/knowledge.h"

namespace quern::emulated {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;                     // of a block
inline constexpr int kMaxClusterThreads = 16 * kMaxThreads;  // all numbered through, block by block

// The last access of a kind to a byte. Epoch 0: there was none.
struct Stamp {
  uint32_t epoch = 0;
  uint32_t who : 15 = 0;     // a thread's number in its cluster; or several readers, see below
  uint32_t time : 16 = 0;    // how often its warp had synchronised in this epoch
  uint32_t pending : 1 = 0;  // a write that an asynchronous copy has yet to do
  uint32_t phase = 0;        // how often the thread had arrived at the barrier of its cluster
  bool operator==(const Stamp&) const = default;
};
// Several threads of warp w: kManyOfWarp + w. Threads of several warps of block b: kManyOfBlock + b, and
// `time` numbers a set of readers. Threads of several blocks: kManyBlocks. TMA, for mbarrier m of
// block b: kEngine + b * kMaxMbarriers + m, and `time` is the phase.
inline constexpr uint32_t kManyOfWarp = kMaxClusterThreads;
inline constexpr uint32_t kManyOfBlock = kManyOfWarp + kMaxClusterThreads / kWarpSize;
inline constexpr uint32_t kManyBlocks = kManyOfBlock + kMaxClusterThreads / kMaxThreads;
inline constexpr uint32_t kEngine = kManyBlocks + 1;

class Clock {
 public:
  // `overlaps`: the launch before it may still run, and those that that one overlaps; they are known only to
  // those who have waited for them.
  void begin_launch(Dim3 grid, Dim3 block, Dim3 cluster, bool overlaps);
  bool overlaps() const { return overlaps_; }
  // Whether what the caller enqueued before the first launch may still run, as far as the thread knows.
  bool awaits_caller(int thread) const { return overlaps_caller() && !sees_earlier_launches(thread); }
  bool overlaps_caller() const { return overlaps_ && launch_begin_ == 1; }
  // Whether the access is of a launch that has ended when this one begins.
  bool has_settled(const Stamp& access) const { return !overlaps_ || access.epoch < settled_; }
  // `blocks` are the numbers of the cluster's blocks in the grid.
  void begin_cluster(const std::vector<uint64_t>& blocks);
  // All threads of block `rank` of the cluster have met.
  void barrier(int rank);
  // These threads, whole warps of one block, have met, and perhaps not all of the block. False as for
  // sync_warp.
  bool meet(const std::vector<int>& threads);
  // Orders the lanes of the thread's warp. False when it can count no further before the next barrier.
  bool sync_warp(int thread);
  // The two halves of the cluster's barrier. All threads have arrived when the first has waited.
  void arrive_at_cluster(int thread) { ++arrivals_[static_cast<size_t>(thread)]; }
  void wait_for_cluster(int thread) { ++waits_[static_cast<size_t>(thread)]; }
  // The thread, and with the next barrier its block, knows all that earlier launches did.
  void wait_for_grid(int thread) { earlier_[static_cast<size_t>(thread)] = true; }
  bool sees_earlier_launches(int thread) const { return earlier_[static_cast<size_t>(thread)]; }
  // Whether the thread knows that all blocks of its cluster have begun.
  bool knows_cluster(int thread) const { return waits_[static_cast<size_t>(thread)] > 0; }

  // What `thread` tells with an arrival at an mbarrier of block `rank` is added to `told`, which whoever
  // waits there gets.
  void release(int thread, int rank, Knowledge& told) const;
  void acquire(int thread, const Knowledge& told);
  // What TMA wrote for a phase of mbarrier `number` of the thread's block.
  Stamp engine(int thread, int number, uint32_t phase) const;

  Stamp now(int thread) const {
    return {epochs_[static_cast<size_t>(rank_of(thread))], static_cast<uint32_t>(thread),
            times_[static_cast<size_t>(warp_of(thread))], 0, arrivals_[static_cast<size_t>(thread)]};
  }
  // Whether the access is before whatever `thread` does now, in every order the GPU may run them.
  bool is_before(const Stamp& access, int thread) const {
    if (access.epoch < launch_begin_) return has_settled(access) || sees_earlier_launches(thread);
    if (access.epoch < cluster_begin_) return false;
    const int rank = rank_of(thread);
    if (rank_of(access) == rank) {
      if (access.epoch < epochs_[static_cast<size_t>(rank)]) return true;
      if (access.who == static_cast<uint32_t>(thread)) return true;
      const int warp = warp_of(thread);
      if (warp_of(access) == warp && access.time < times_[static_cast<size_t>(warp)]) return true;
      if (knows(access, thread)) return true;
    } else if (knows_foreign(access, thread)) {
      return true;
    }
    return access.phase < waits_[static_cast<size_t>(thread)];
  }
  // Adds a read by `thread` to the readers that are remembered, such that is_before of the result holds only
  // if it holds of them all.
  void add_reader(Stamp& readers, int thread);
  // Whether threads of other blocks of the cluster than `rank` made the access.
  bool is_foreign(const Stamp& access, int rank) const {
    return access.epoch >= cluster_begin_ && rank_of(access) != rank;
  }
  // "thread (3,0,0) of block (1,0,0)".
  std::string describe(const Stamp& access) const;
  std::string describe_thread(int thread) const;
  std::string describe_block(uint64_t block) const;

  int rank_of(int thread) const { return thread / block_threads_; }

 private:
  // Warps are numbered as if every block had kMaxThreads threads, so that none is of two blocks.
  int warp_of(int thread) const {
    return rank_of(thread) * (kMaxThreads / kWarpSize) + thread % block_threads_ / kWarpSize;
  }
  static constexpr uint32_t kLastTime = (1u << 16) - 1;
  // -1 if the stamp is of several warps, or of several blocks.
  int warp_of(const Stamp& access) const;
  int rank_of(const Stamp& access) const;
  bool knows(const Stamp& access, int thread) const;
  bool knows_foreign(const Stamp& access, int thread) const;

  uint32_t epoch_ = 0, launch_begin_ = 0, cluster_begin_ = 0;
  uint32_t settled_ = 0;  // what was before is known to all threads
  bool overlaps_ = false;
  std::vector<bool> earlier_;  // of each thread
  Dim3 grid_, block_;
  int block_threads_ = 1, ranks_ = 1;
  std::vector<uint32_t> epochs_;            // of each block of the cluster, since its last barrier
  std::vector<uint32_t> times_;             // of each warp
  std::vector<uint32_t> arrivals_, waits_;  // at the cluster's barrier, of each thread
  std::vector<BlockKnowledge> known_;       // in each block of the cluster, since its last barrier
  std::vector<std::pair<uint32_t, std::vector<uint64_t>>> clusters_;  // of this launch: first epoch, blocks
};

}  // namespace quern::emulated
