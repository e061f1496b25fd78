#include "core/emulator/mbarrier.h"

#include <algorithm>

namespace quern::emulated {

namespace {

constexpr size_t kBarrierBytes = 8;

}  // namespace

void Mbarriers::begin_cluster() {
  barriers_.clear();
  under_way_.clear();
}

std::string Mbarriers::init(uintptr_t address, int arrivals, int thread) {
  if (address % kBarrierBytes != 0) return "misaligned mbarrier at " + memory_.locate(address);
  if (arrivals < 1 || arrivals >= 1 << 20)
    return "an mbarrier that counts " + std::to_string(arrivals) + " arrivals";
  if (barriers_.contains(address)) return "an mbarrier is made twice";
  if (!memory_.write(address, kBarrierBytes, thread)) return memory_.violation();
  if (!memory_.read_shared(address, kBarrierBytes, thread)) return memory_.violation();
  Barrier barrier;
  barrier.number = static_cast<int>(std::count_if(barriers_.begin(), barriers_.end(), [&](const auto& other) {
    return clock_.rank_of(other.second.maker) == clock_.rank_of(thread);
  }));
  if (barrier.number == kMaxMbarriers) return "more mbarriers in a block than the emulator can count";
  barrier.maker = thread;
  barrier.arrivals = barrier.missing = arrivals;
  barriers_.emplace(address, std::move(barrier));
  return "";
}

void Mbarriers::fence_init(int thread) {
  for (auto& [address, barrier] : barriers_)
    if (barrier.maker == thread) barrier.shown = true;
}

Mbarriers::Barrier* Mbarriers::find(uintptr_t address, int thread, std::string& violation) {
  const auto at = barriers_.find(address);
  if (at == barriers_.end()) {
    violation = "no mbarrier at " + memory_.locate(address);
    return nullptr;
  }
  if (!memory_.read(address, kBarrierBytes, thread)) {  // made before, as far as the thread can know
    violation = memory_.violation();
    return nullptr;
  }
  return &at->second;
}

std::string Mbarriers::arrive(uintptr_t address, int64_t bytes, int thread) {
  std::string violation;
  Barrier* barrier = find(address, thread, violation);
  if (!barrier) return violation;
  if (barrier->missing == 0)
    return "more than " + std::to_string(barrier->arrivals) + " arrivals in a phase of an mbarrier";
  barrier->bytes += bytes;
  --barrier->missing;
  clock_.release(thread, clock_.rank_of(barrier->maker), barrier->coming);
  return end_phase(address, *barrier);
}

std::string Mbarriers::end_phase(uintptr_t address, Barrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes > 0) return "";
  const bool more = std::any_of(under_way_.begin(), under_way_.end(),
                                [&](const Counted& each) { return each.barrier == address; });
  if (more || barrier.bytes < 0)
    return "a phase of an mbarrier ends while copies that it counts are under way: fewer bytes were "
           "announced "
           "than asked for";
  ++barrier.phase;
  barrier.missing = barrier.arrivals;
  barrier.told.add(barrier.coming);
  barrier.told.phases[static_cast<size_t>(barrier.number)] = barrier.phase;
  barrier.coming = {};
  return "";
}

std::string Mbarriers::copy(const Copy& copy, uintptr_t address, int thread) {
  std::string violation;
  Barrier* barrier = find(address, thread, violation);
  if (!barrier) return violation;
  if (!barrier->shown) return "TMA cannot know of this mbarrier: no mbarrier_init_fence behind it";
  if (violation = copy.begin(memory_, thread); !violation.empty()) return violation;
  under_way_.push_back({copy, barrier->phase, address});
  return "";
}

std::string Mbarriers::land_one(std::mt19937_64& random) {
  std::swap(under_way_[random() % under_way_.size()], under_way_.back());
  const Counted one = under_way_.back();
  under_way_.pop_back();
  Barrier& barrier = barriers_.at(one.barrier);
  barrier.bytes -= static_cast<int64_t>(one.copy.bytes);
  barrier.landed.push_back(one);
  return end_phase(one.barrier, barrier);
}

bool Mbarriers::try_wait(uintptr_t address, unsigned parity, int thread, std::string& violation) {
  Barrier* barrier = find(address, thread, violation);
  if (!barrier || (barrier->phase & 1) == (parity & 1)) return false;
  clock_.acquire(thread, barrier->told);
  std::erase_if(barrier->landed, [&](const Counted& each) {
    if (each.phase >= barrier->phase) return false;
    each.copy.end(memory_, clock_.engine(thread, barrier->number, each.phase));
    return true;
  });
  return true;
}

std::string Mbarriers::end_cluster() const {
  size_t open = under_way_.size();
  for (const auto& [address, barrier] : barriers_) open += barrier.landed.size();
  if (open == 0) return "";
  return "the block ends with " + std::to_string(open) + " copies that nobody waited for";
}

std::string Mbarriers::describe(uintptr_t address) const {
  const auto at = barriers_.find(address);
  if (at == barriers_.end()) return "";
  return "phase " + std::to_string(at->second.phase) + " lacks " + std::to_string(at->second.missing) +
         " arrivals and " + std::to_string(at->second.bytes) + " bytes";
}

}  // namespace quern::emulated
