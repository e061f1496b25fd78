// When something happened in a launch, and whether one thread can know that another's access came before its
// own.
//
// Blocks run one after another, so a counter that rises at every block's start and at every barrier (the
// epoch) tells blocks and the intervals between barriers apart. Within an interval only __syncwarp orders,
// the threads of its warp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/plan.h"

namespace quern::emulated {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;

// The last access of a kind to a byte. Epoch 0: there was none.
struct Stamp {
  uint32_t epoch = 0;
  uint32_t who : 11 = 0;     // a thread's number in its block; or several readers, see below
  uint32_t time : 20 = 0;    // how often its warp had synchronised in this epoch
  uint32_t pending : 1 = 0;  // a write that an asynchronous copy has yet to do
};
// Several threads of warp w: kManyOfWarp + w. Threads of several warps: kManyWarps.
inline constexpr uint32_t kManyOfWarp = kMaxThreads;
inline constexpr uint32_t kManyWarps = kMaxThreads + kMaxThreads / kWarpSize;

class Clock {
 public:
  void begin_launch(Dim3 grid, Dim3 block);
  void begin_block(uint64_t block);
  void barrier();
  // Orders the lanes of a warp. False when it can count no further before the next barrier.
  bool sync_warp(int warp);

  Stamp now(int thread) const {
    return {epoch_, static_cast<uint32_t>(thread), times_[thread / kWarpSize], 0};
  }
  // Whether the access is before whatever `thread` does now, in every order the GPU may run them.
  bool is_before(const Stamp& access, int thread) const {
    if (access.epoch != epoch_) return access.epoch < launch_begin_ || access.epoch >= block_begin_;
    if (access.who == static_cast<uint32_t>(thread)) return true;
    const int warp = thread / kWarpSize;
    return warp_of(access) == warp && access.time < times_[warp];
  }
  // Adds a read by `thread` to the readers that are remembered, such that is_before of the result holds only
  // if it holds of them all.
  void add_reader(Stamp& readers, int thread) const;
  // "thread (3,0,0) of block (1,0,0)".
  std::string describe(const Stamp& access) const;
  std::string describe_thread(int thread) const;
  std::string describe_block(uint64_t block) const;

 private:
  // -1 if the stamp is of several warps.
  static int warp_of(const Stamp& access) {
    if (access.who < kManyOfWarp) return access.who / kWarpSize;
    return access.who < kManyWarps ? access.who - kManyOfWarp : -1;
  }

  uint32_t epoch_ = 0, launch_begin_ = 0, block_begin_ = 0;
  std::array<uint32_t, kMaxThreads / kWarpSize> times_{};
  Dim3 grid_, block_;
  std::vector<std::pair<uint32_t, uint64_t>> blocks_;  // of this launch: first epoch, block number
};

}  // namespace quern::emulated
