// What copies for a block beside its threads, and how threads wait for that.
#include <algorithm>

#include "core/emulator/block.h"

namespace quern::emulated {

namespace {

using State = EmulatedThread::State;

uintptr_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

void Block::copy_bytes(const CopyInstruction& instruction, void* shared, void* global, int bytes,
                       int global_bytes, void* barrier, const void* site) {
  if (global_bytes < 0 || global_bytes > bytes)
    fail(std::string(instruction.name) + " of " + std::to_string(bytes) + " bytes with " +
             std::to_string(global_bytes) + " source bytes",
         site);
  begin_copy({&instruction, address_of(shared), static_cast<size_t>(bytes), address_of(global),
              static_cast<size_t>(global_bytes)},
             barrier, site);
}

void Block::copy_box(const CopyInstruction& instruction, void* shared, const void* map, const int* x,
                     int rank, void* barrier, const int* mask, const void* site) {
  const auto& bound = *static_cast<const BoundTensorMap*>(map);
  if (static_cast<size_t>(rank) != bound.map->shape.size())
    fail(std::string(instruction.name) + " with " + std::to_string(rank) +
             " coordinates of a tensor map with " + std::to_string(bound.map->shape.size()),
         site);
  Copy copy{&instruction, address_of(shared), static_cast<size_t>(bound.map->box_bytes()), 0, 0, bound};
  std::copy_n(x, rank, copy.at.begin());
  if (!mask) return begin_copy(copy, barrier, site);
  if (*mask <= 0 || *mask >> ranks_ != 0)
    fail(std::string(instruction.name) + " into blocks " + std::to_string(*mask) + ", of a cluster of " +
             std::to_string(ranks_),
         site);
  for (int block = 0; block < ranks_; ++block) {
    if (!(*mask >> block & 1)) continue;
    copy.shared = address_of(cluster_address(shared, block, site));
    begin_copy(copy, cluster_address(barrier, block, site), site);
  }
}

void Block::begin_copy(const Copy& copy, void* barrier, const void* site) {
  if (barrier) return check_rule(mbarriers_.copy(copy, address_of(barrier), current_), site);
  check_rule(copy.begin(memory_, current_), site);
  threads_[current_].copies[copy.instruction->group].add(copy);
}

void Block::wait_for_copies(const char* group, int pending, const void* site) {
  check_rule(threads_[current_].copies[group].wait(pending, memory_, clock_.now(current_)), site);
}

void Block::wait_at_mbarrier(void* barrier, unsigned parity, const void* site) {
  EmulatedThread& self = threads_[current_];
  std::string violation;
  while (!mbarriers_.try_wait(address_of(barrier), parity, current_, violation)) {
    check_rule(std::move(violation), site);
    self.state = State::at_mbarrier;
    self.site = site;
    self.mbarrier = address_of(barrier);
    self.parity = parity;
    suspend();
  }
}

// Those who wait look again.
void Block::wake_at_mbarriers() {
  for (int i = 0; i < static_cast<int>(threads_.size()); ++i)
    if (threads_[i].state == State::at_mbarrier) make_runnable(i);
}

void Block::arrive_at_other(void* barrier, int rank, const void* site) {
  void* const there = cluster_address(barrier, rank, site);
  check_rule(mbarriers_.arrive(address_of(there), 0, current_), site);
  wake_at_mbarriers();
}

}  // namespace quern::emulated
