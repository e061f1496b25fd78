// What copies for a block beside its threads, cp.async and TMA, and how threads wait for that.
#include <algorithm>

#include "core/emulator/block.h"

namespace quern::emulated {

namespace {

using State = EmulatedThread::State;

uintptr_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

void Block::copy_async(void* shared, const void* global, int bytes, int source_bytes, const void* site) {
  AsyncCopy copy{address_of(shared), address_of(global), bytes, source_bytes,
                 threads_[current_].committed_groups};
  if (source_bytes < 0 || source_bytes > bytes)
    fail("cp_async of " + std::to_string(bytes) + " bytes with " + std::to_string(source_bytes) +
             " source bytes",
         site);
  if (copy.to % bytes != 0) fail("misaligned cp_async to " + memory_.locate(copy.to), site);
  if (source_bytes > 0 && copy.from % bytes != 0)
    fail("misaligned cp_async from " + memory_.locate(copy.from), site);
  if (!memory_.begin_copy(copy.to, copy.from, bytes, source_bytes, current_)) fail(memory_.violation(), site);
  threads_[current_].copies.push_back(copy);
}

void Block::wait_for_copies(int pending, const void* site) {
  EmulatedThread& self = threads_[current_];
  auto is_due = [&](const AsyncCopy& copy) { return copy.group < self.committed_groups - pending; };
  for (const AsyncCopy& copy : self.copies) {
    if (is_due(copy) && !memory_.end_copy(copy.to, copy.from, copy.bytes, copy.source_bytes, current_))
      fail(memory_.violation(), site);
  }
  std::erase_if(self.copies, is_due);
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

BoxPlace Block::place_of_box(const char* what, const BoundTensorMap& map, const int* x, int rank,
                             const void* site) {
  if (static_cast<size_t>(rank) != map.map->shape.size())
    fail(what + std::string(" with ") + std::to_string(rank) + " coordinates of a tensor map with " +
             std::to_string(map.map->shape.size()),
         site);
  BoxPlace at{};
  for (int i = 0; i < rank; ++i) at[static_cast<size_t>(i)] = x[i];
  return at;
}

void Block::load_box(void* to, const void* map, void* barrier, const int* x, int rank, const void* site) {
  const auto& bound = *static_cast<const BoundTensorMap*>(map);
  const BoxPlace at = place_of_box("tma_load", bound, x, rank, site);
  check_rule(mbarriers_.load_box(address_of(to), bound, address_of(barrier), at, current_), site);
}

void Block::load_box_into_blocks(void* to, const void* map, void* barrier, int mask, const int* x, int rank,
                                 const void* site) {
  const auto& bound = *static_cast<const BoundTensorMap*>(map);
  const BoxPlace at = place_of_box("tma_load_multicast", bound, x, rank, site);
  if (mask <= 0 || mask >> ranks_ != 0)
    fail("tma_load_multicast into blocks " + std::to_string(mask) + ", of a cluster of " +
             std::to_string(ranks_),
         site);
  for (int block = 0; block < ranks_; ++block) {
    if (!(mask >> block & 1)) continue;
    const uintptr_t there = address_of(cluster_address(to, block, site)),
                    signal = address_of(cluster_address(barrier, block, site));
    check_rule(mbarriers_.load_box(there, bound, signal, at, current_), site);
  }
}

void Block::arrive_at_other(void* barrier, int rank, const void* site) {
  void* const there = cluster_address(barrier, rank, site);
  check_rule(mbarriers_.arrive(address_of(there), 0, current_), site);
  wake_at_mbarriers();
}

// The box is read when the thread waits for it: as late as the hardware may.
void Block::store_box(const void* from, const void* map, const int* x, int rank, const void* site) {
  EmulatedThread& self = threads_[current_];
  const BoxStore store{*static_cast<const BoundTensorMap*>(map),
                       place_of_box("tma_store", *static_cast<const BoundTensorMap*>(map), x, rank, site),
                       address_of(from), self.committed_stores};
  if (store.from % 128 != 0)
    fail("tma_store from " + memory_.locate(store.from) + ", which is not aligned to 128 bytes", site);
  if (!memory_.read_by_engine(store.from, store.bytes(), current_) ||
      !store.map.write_box(store.at, memory_, current_))
    fail(memory_.violation(), site);
  memory_.hold(store.from, store.bytes());
  self.stores.push_back(store);
}

void Block::wait_for_stores(int pending) {
  EmulatedThread& self = threads_[current_];
  std::erase_if(self.stores, [&](const BoxStore& store) {
    if (store.group >= self.committed_stores - pending) return false;
    store.map.store_box(store.at, store.from);
    memory_.release(store.from, store.bytes());
    return true;
  });
}

}  // namespace quern::emulated
