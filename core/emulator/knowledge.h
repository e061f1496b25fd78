// What the threads of a block know of each other since the last barrier of all, and of other blocks of the
// cluster that have arrived at its mbarriers: who has waited at an mbarrier (or at a barrier of some threads,
// which is a __syncwarp of their warps too) knows what those who had arrived there knew, and had done before
// their warp's last __syncwarp. (The hardware also lets an arrival tell what its thread did since; no kernel
// here counts on that.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace quern::emulated {

inline constexpr int kMaxBlockWarps = 32, kMaxMbarriers = 40;

// Accesses with a lower time are known: of each warp in intervals between its __syncwarp, of TMA
// in phases of each mbarrier.
struct Knowledge {
  std::array<uint32_t, kMaxBlockWarps> warps{};
  std::array<uint32_t, kMaxMbarriers> phases{};
  // Of another block of the cluster: that of the epoch, and all of those before it.
  struct Foreign {
    uint32_t epoch = 0;
    std::array<uint32_t, kMaxBlockWarps> warps{};
    std::array<uint32_t, kMaxMbarriers> phases{};
    void add(const Foreign& other);
  };
  std::map<int, Foreign> others;  // by rank; told by arrivals at mbarriers of other blocks
  void add(const Knowledge& other);
};

class BlockKnowledge {
 public:
  void forget();
  // What one lane knows, all know.
  void sync_warp(int warp);
  // Threads are numbered in their block; `time` is that of the thread's warp.
  void release(int thread, uint32_t time, Knowledge& told) const;
  void acquire(int thread, const Knowledge& told);
  // Null if it knows nothing.
  const Knowledge* of(int thread) const {
    return threads_.empty() ? nullptr : &threads_[static_cast<size_t>(thread)];
  }

  // Sets of readers: warps, with the latest time of each.
  uint32_t single(int warp, uint32_t time) { return with(kNone, warp, time); }
  uint32_t with(uint32_t set, int warp, uint32_t time);
  // Whether `thread`, whose own warp has got to `time`, knows of all the set's accesses.
  bool knows_set(uint32_t set, int thread, uint32_t time) const;
  // Whether another block knows of them.
  bool is_known(uint32_t set, const Knowledge::Foreign& to) const;

 private:
  static constexpr uint32_t kNone = ~0u;
  std::vector<Knowledge> threads_;
  std::vector<std::map<int, uint32_t>> sets_;
  std::map<std::array<uint32_t, 3>, uint32_t> unions_;  // set, warp, time: the same ones again and again
};

}  // namespace quern::emulated
