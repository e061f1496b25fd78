#include "tests/emulator/clock.h"

#include <algorithm>

namespace quern::emulated {

namespace {

constexpr uint32_t kLastTime = (1u << 20) - 1;

std::string coordinates(uint64_t number, Dim3 size) {
  return "(" + std::to_string(number % size.x) + "," + std::to_string(number / size.x % size.y) + "," +
         std::to_string(number / size.x / size.y) + ")";
}

}  // namespace

void Clock::begin_launch(Dim3 grid, Dim3 block) {
  grid_ = grid;
  block_ = block;
  blocks_.clear();
  launch_begin_ = epoch_ + 1;
}

void Clock::begin_block(uint64_t block) {
  barrier();
  block_begin_ = epoch_;
  blocks_.push_back({epoch_, block});
}

void Clock::barrier() {
  ++epoch_;
  check(epoch_ != 0, "a run has fewer than 2^32 barriers");
  times_.fill(0);
}

bool Clock::sync_warp(int warp) { return ++times_[warp] < kLastTime; }

void Clock::add_reader(Stamp& readers, int thread) const {
  if (readers.epoch != epoch_) {
    // Readers in another block of this launch race with any writer to come: they must not be forgotten.
    const bool other_block = readers.epoch >= launch_begin_ && readers.epoch < block_begin_;
    if (!other_block) readers = now(thread);
    return;
  }
  if (is_before(readers, thread)) {
    readers = now(thread);
    return;
  }
  const int warp = thread / kWarpSize;
  const bool same_warp = warp_of(readers) == warp;
  readers = now(thread);
  readers.who = same_warp ? kManyOfWarp + warp : kManyWarps;
}

std::string Clock::describe_thread(int thread) const { return "thread " + coordinates(thread, block_); }
std::string Clock::describe_block(uint64_t block) const { return "block " + coordinates(block, grid_); }

std::string Clock::describe(const Stamp& access) const {
  std::string who = access.who < kManyOfWarp ? describe_thread(access.who)
                    : access.who < kManyWarps
                        ? "several threads of warp " + std::to_string(access.who - kManyOfWarp)
                        : "threads of several warps";
  if (access.epoch < launch_begin_) return who + " of an earlier launch";
  auto next = std::upper_bound(blocks_.begin(), blocks_.end(), access.epoch,
                               [](uint32_t epoch, const auto& block) { return epoch < block.first; });
  return who + " of " +
         (access.epoch >= block_begin_ ? "this block" : describe_block(std::prev(next)->second));
}

}  // namespace quern::emulated
