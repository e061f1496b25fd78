#include "tests/emulator/clock.h"

#include <algorithm>

namespace quern::emulated {

namespace {

constexpr int kWarps = kMaxThreads / kWarpSize;  // of a block, at most

std::string coordinates(uint64_t number, Dim3 size) {
  return "(" + std::to_string(number % size.x) + "," + std::to_string(number / size.x % size.y) + "," +
         std::to_string(number / size.x / size.y) + ")";
}

}  // namespace

void Clock::begin_launch(Dim3 grid, Dim3 block, Dim3 cluster) {
  grid_ = grid;
  block_ = block;
  block_threads_ = static_cast<int>(block.count());
  ranks_ = static_cast<int>(cluster.count());
  const size_t threads = static_cast<size_t>(block_threads_) * static_cast<size_t>(ranks_);
  epochs_.assign(threads, 0);
  for (auto& epochs : arrived_) epochs.assign(threads, 0);
  intervals_.assign(static_cast<size_t>(ranks_), 0);
  times_.assign(static_cast<size_t>(ranks_ * kWarps), 0);
  clusters_.clear();
  launch_begin_ = epoch_ + 1;
}

void Clock::begin_cluster(const std::vector<uint64_t>& blocks) {
  cluster_begin_ = epoch_ + 1;
  arrivals_.assign(epochs_.size(), 0);
  waits_.assign(epochs_.size(), 0);
  after_arrival_ = 0;
  for (int rank = 0; rank < ranks_; ++rank) barrier(rank);
  clusters_.push_back({cluster_begin_, blocks});
}

void Clock::barrier(int rank) {
  ++epoch_;
  check(epoch_ != 0, "a run has fewer than 2^32 barriers");
  std::fill_n(epochs_.begin() + rank * block_threads_, block_threads_, epoch_);
  std::fill_n(times_.begin() + rank * kWarps, kWarps, 0);
  intervals_[static_cast<size_t>(rank)] = epoch_;
}

// What a thread does after it has arrived is in another epoch than what it did before.
void Clock::arrive_at_cluster(int thread) {
  uint32_t& own = epochs_[static_cast<size_t>(thread)];
  arrived_[arrivals_[static_cast<size_t>(thread)]++ % 2][static_cast<size_t>(thread)] = own;
  if (after_arrival_ <= own) after_arrival_ = ++epoch_;
  own = after_arrival_;
}

int Clock::rank_of(const Stamp& access) const {
  if (access.who < kManyOfWarp) return rank_of(static_cast<int>(access.who));
  if (access.who < kManyOfBlock) return static_cast<int>(access.who - kManyOfWarp) / kWarps;
  return access.who < kManyBlocks ? static_cast<int>(access.who - kManyOfBlock) : -1;
}

int Clock::warp_of(const Stamp& access) const {
  if (access.who < kManyOfWarp) return warp_of(static_cast<int>(access.who));
  return access.who < kManyOfBlock ? static_cast<int>(access.who - kManyOfWarp) : -1;
}

// All whom the stamp may mean had arrived after the access at a barrier that `thread` has waited for.
bool Clock::is_before_cluster(const Stamp& access, int thread) const {
  const auto& arrived = arrived_[(waits_[static_cast<size_t>(thread)] - 1) % 2];
  if (access.who < kManyOfWarp) return access.epoch <= arrived[access.who];
  const int rank = rank_of(access);
  const auto first = arrived.begin() + std::max(rank, 0) * block_threads_;
  return access.epoch <= *std::min_element(first, rank < 0 ? arrived.end() : first + block_threads_);
}

void Clock::add_reader(Stamp& readers, int thread) const {
  // Readers in another cluster of this launch race with any writer to come: they must not be forgotten.
  if (readers.epoch >= launch_begin_ && readers.epoch < cluster_begin_) return;
  const Stamp own = now(thread);
  if (is_before(readers, thread)) {
    readers = own;
    return;
  }
  const int rank = rank_of(thread), warp = warp_of(thread);
  const bool same_warp = warp_of(readers) == warp, same_block = rank_of(readers) == rank;
  const uint32_t latest = std::max(readers.epoch, own.epoch);
  readers = own;
  readers.epoch = latest;
  readers.who = same_warp    ? kManyOfWarp + static_cast<uint32_t>(warp)
                : same_block ? kManyOfBlock + static_cast<uint32_t>(rank)
                             : kManyBlocks;
}

std::string Clock::describe_thread(int thread) const {
  return "thread " + coordinates(static_cast<uint64_t>(thread % block_threads_), block_);
}
std::string Clock::describe_block(uint64_t block) const { return "block " + coordinates(block, grid_); }

std::string Clock::describe(const Stamp& access) const {
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
