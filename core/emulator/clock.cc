#include "core/emulator/clock.h"

#include <algorithm>

namespace quern::emulated {

namespace {

constexpr int kWarps = kMaxThreads / kWarpSize;  // of a block, at most

std::string coordinates(uint64_t number, Dim3 size) {
  return "(" + std::to_string(number % size.x) + "," + std::to_string(number / size.x % size.y) + "," +
         std::to_string(number / size.x / size.y) + ")";
}

}  // namespace

void Clock::begin_launch(Dim3 grid, Dim3 block, Dim3 cluster, bool overlaps) {
  // Whoever did not overlap began when all before it had ended.
  if (overlaps && !overlaps_) settled_ = launch_begin_;
  overlaps_ = overlaps;
  grid_ = grid;
  block_ = block;
  block_threads_ = static_cast<int>(block.count());
  ranks_ = static_cast<int>(cluster.count());
  epochs_.assign(static_cast<size_t>(ranks_), 0);
  times_.assign(static_cast<size_t>(ranks_ * kWarps), 0);
  known_.assign(static_cast<size_t>(ranks_), {});
  clusters_.clear();
  launch_begin_ = epoch_ + 1;
}

void Clock::begin_cluster(const std::vector<uint64_t>& blocks) {
  cluster_begin_ = epoch_ + 1;
  arrivals_.assign(static_cast<size_t>(block_threads_ * ranks_), 0);
  waits_ = arrivals_;
  earlier_.assign(arrivals_.size(), !overlaps_);
  for (int rank = 0; rank < ranks_; ++rank) barrier(rank);
  clusters_.push_back({cluster_begin_, blocks});
}

void Clock::barrier(int rank) {
  ++epoch_;
  check(epoch_ != 0, "a run has fewer than 2^32 barriers");
  std::fill_n(times_.begin() + rank * kWarps, kWarps, 0);
  epochs_[static_cast<size_t>(rank)] = epoch_;
  known_[static_cast<size_t>(rank)].forget();
  const auto first = earlier_.begin() + rank * block_threads_, last = first + block_threads_;
  if (std::find(first, last, true) != last) std::fill(first, last, true);
}

bool Clock::sync_warp(int thread) {
  known_[static_cast<size_t>(rank_of(thread))].sync_warp(thread % block_threads_ / kWarpSize);
  return ++times_[static_cast<size_t>(warp_of(thread))] < kLastTime;
}

bool Clock::meet(const std::vector<int>& threads) {
  Knowledge told;
  bool counted = true;
  for (int thread : threads) {
    if (thread % block_threads_ % kWarpSize == 0) counted &= sync_warp(thread);
    release(thread, rank_of(thread), told);
  }
  for (int thread : threads) acquire(thread, told);
  return counted;
}

void Clock::release(int thread, int rank, Knowledge& told) const {
  const int own = rank_of(thread);
  auto release_to = [&](Knowledge& to) {
    known_[static_cast<size_t>(own)].release(thread % block_threads_,
                                             times_[static_cast<size_t>(warp_of(thread))], to);
  };
  if (own == rank) return release_to(told);
  Knowledge all;
  release_to(all);
  told.others[own].add({epochs_[static_cast<size_t>(own)], all.warps, all.phases});
  const auto of_rank = all.others.find(rank);
  if (of_rank != all.others.end()) {
    Knowledge back;  // what the block has told before
    back.phases = of_rank->second.phases;
    if (of_rank->second.epoch == epochs_[static_cast<size_t>(rank)]) back.warps = of_rank->second.warps;
    told.add(back);
    all.others.erase(of_rank);
  }
  for (const auto& [other, seen] : all.others) told.others[other].add(seen);
}

void Clock::acquire(int thread, const Knowledge& told) {
  known_[static_cast<size_t>(rank_of(thread))].acquire(thread % block_threads_, told);
}

Stamp Clock::engine(int thread, int number, uint32_t phase) const {
  Stamp stamp = now(thread);
  stamp.who = kEngine + static_cast<uint32_t>(rank_of(thread) * kMaxMbarriers + number);
  stamp.time = phase & 0xffff;
  return stamp;
}

// Of an access of this interval by another warp of the thread's block, or by TMA for it.
bool Clock::knows(const Stamp& access, int thread) const {
  const BlockKnowledge& block = known_[static_cast<size_t>(rank_of(thread))];
  const Knowledge* own = block.of(thread % block_threads_);
  if (!own) return false;
  if (access.who >= kEngine) return access.time < own->phases[(access.who - kEngine) % kMaxMbarriers];
  if (access.who >= kManyOfBlock)
    return block.knows_set(access.time, thread % block_threads_,
                           times_[static_cast<size_t>(warp_of(thread))]);
  const int warp = warp_of(access) % kWarps;
  return warp != warp_of(thread) % kWarps && access.time < own->warps[static_cast<size_t>(warp)];
}

// Of an access by another block of the cluster, or by TMA for it.
bool Clock::knows_foreign(const Stamp& access, int thread) const {
  const int rank = rank_of(access);
  const Knowledge* own = known_[static_cast<size_t>(rank_of(thread))].of(thread % block_threads_);
  if (rank < 0 || !own) return false;
  const auto at = own->others.find(rank);
  if (at == own->others.end()) return false;
  const Knowledge::Foreign& seen = at->second;
  if (access.epoch != seen.epoch) return access.epoch < seen.epoch;
  if (access.who >= kEngine) return access.time < seen.phases[(access.who - kEngine) % kMaxMbarriers];
  if (access.who >= kManyOfBlock) return known_[static_cast<size_t>(rank)].is_known(access.time, seen);
  return access.time < seen.warps[static_cast<size_t>(warp_of(access) % kWarps)];
}

int Clock::rank_of(const Stamp& access) const {
  if (access.who < kManyOfWarp) return rank_of(static_cast<int>(access.who));
  if (access.who < kManyOfBlock) return static_cast<int>(access.who - kManyOfWarp) / kWarps;
  if (access.who >= kEngine) return static_cast<int>(access.who - kEngine) / kMaxMbarriers;
  return access.who < kManyBlocks ? static_cast<int>(access.who - kManyOfBlock) : -1;
}

int Clock::warp_of(const Stamp& access) const {
  if (access.who < kManyOfWarp) return warp_of(static_cast<int>(access.who));
  return access.who < kManyOfBlock ? static_cast<int>(access.who - kManyOfWarp) : -1;
}

void Clock::add_reader(Stamp& readers, int thread) {
  // Readers in another cluster of this launch race with any writer to come: they must not be forgotten.
  if (readers.epoch >= launch_begin_ && readers.epoch < cluster_begin_) return;
  const Stamp own = now(thread);
  if (is_before(readers, thread)) {
    readers = own;
    return;
  }
  const int rank = rank_of(thread), warp = warp_of(thread);
  const bool same_warp = warp_of(readers) == warp, same_block = rank_of(readers) == rank;
  uint32_t time = own.time;
  if (same_block && !same_warp) {
    BlockKnowledge& block = known_[static_cast<size_t>(rank)];
    const bool many = readers.who >= kManyOfBlock;
    time = block.with(many ? readers.time : block.single(warp_of(readers) % kWarps, readers.time),
                      warp % kWarps, own.time);
  }
  const Stamp others = readers;
  readers = own;
  readers.epoch = std::max(others.epoch, own.epoch);
  readers.phase = std::max(others.phase, own.phase);
  readers.time = time;
  readers.who = same_warp    ? kManyOfWarp + static_cast<uint32_t>(warp)
                : same_block ? kManyOfBlock + static_cast<uint32_t>(rank)
                             : kManyBlocks;
}

std::string Clock::describe_thread(int thread) const {
  return "thread " + coordinates(static_cast<uint64_t>(thread % block_threads_), block_);
}
std::string Clock::describe_block(uint64_t block) const { return "block " + coordinates(block, grid_); }

std::string Clock::describe(const Stamp& access) const {
  if (access.who >= kEngine) return "TMA";
  std::string who = access.who < kManyOfWarp ? describe_thread(static_cast<int>(access.who))
                    : access.who < kManyOfBlock
                        ? "several threads of warp " + std::to_string((access.who - kManyOfWarp) % kWarps)
                        : "threads of several warps";
  if (access.epoch < launch_begin_) return who + " of an earlier launch";
  auto next = std::upper_bound(clusters_.begin(), clusters_.end(), access.epoch,
                               [](uint32_t epoch, const auto& cluster) { return epoch < cluster.first; });
  const std::vector<uint64_t>& blocks = std::prev(next)->second;
  const int rank = rank_of(access);
  if (rank < 0) return who + " of several blocks";
  if (access.epoch >= cluster_begin_ && ranks_ == 1) return who + " of this block";
  return who + " of " + describe_block(blocks[static_cast<size_t>(rank)]);
}

}  // namespace quern::emulated
