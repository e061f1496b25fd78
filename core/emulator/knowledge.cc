#include "core/emulator/knowledge.h"

#include <algorithm>

#include "core/base/status.h"

namespace quern::emulated {

namespace {

constexpr int kLanes = 32;
constexpr size_t kMaxSets = (1u << 16) - 1;  // what a Stamp can count

void add_latest(auto& own, const auto& other) {
  for (size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], other[i]);
}

}  // namespace

void Knowledge::add(const Knowledge& other) {
  add_latest(warps, other.warps);
  add_latest(phases, other.phases);
  for (const auto& [rank, seen] : other.others) others[rank].add(seen);
}

// Times of warps begin again with every epoch, phases do not.
void Knowledge::Foreign::add(const Foreign& other) {
  add_latest(phases, other.phases);
  if (other.epoch == epoch) add_latest(warps, other.warps);
  if (other.epoch <= epoch) return;
  epoch = other.epoch;
  warps = other.warps;
}

void BlockKnowledge::forget() {
  threads_.clear();
  sets_.clear();
  unions_.clear();
}

void BlockKnowledge::sync_warp(int warp) {
  if (threads_.empty()) return;
  const auto first = threads_.begin() + warp * kLanes;
  Knowledge all;
  for (auto lane = first; lane != first + kLanes; ++lane) all.add(*lane);
  std::fill_n(first, kLanes, all);
}

void BlockKnowledge::release(int thread, uint32_t time, Knowledge& told) const {
  uint32_t& own = told.warps[static_cast<size_t>(thread / kLanes)];
  own = std::max(own, time);
  if (const Knowledge* knowledge = of(thread)) told.add(*knowledge);
}

void BlockKnowledge::acquire(int thread, const Knowledge& told) {
  if (threads_.empty()) threads_.resize(kMaxBlockWarps * kLanes);
  threads_[static_cast<size_t>(thread)].add(told);
}

uint32_t BlockKnowledge::with(uint32_t set, int warp, uint32_t time) {
  std::map<int, uint32_t> all;
  if (set != kNone) {
    const auto own = sets_[set].find(warp);
    if (own != sets_[set].end() && own->second >= time) return set;
  }
  const auto [found, fresh] =
      unions_.try_emplace({set, static_cast<uint32_t>(warp), time}, static_cast<uint32_t>(sets_.size()));
  if (fresh) {
    check(sets_.size() < kMaxSets, "the emulator can count the sets of readers between two barriers");
    if (set != kNone) all = sets_[set];
    all[warp] = time;
    sets_.push_back(std::move(all));
  }
  return found->second;
}

bool BlockKnowledge::knows_set(uint32_t set, int thread, uint32_t time) const {
  const Knowledge* own = of(thread);
  return own && std::all_of(sets_[set].begin(), sets_[set].end(), [&](const auto& reader) {
           const auto& [warp, read] = reader;
           return read < (warp == thread / kLanes ? time : own->warps[static_cast<size_t>(warp)]);
         });
}

bool BlockKnowledge::is_known(uint32_t set, const Knowledge::Foreign& to) const {
  return set < sets_.size() && std::all_of(sets_[set].begin(), sets_[set].end(), [&](const auto& reader) {
           return reader.second < to.warps[static_cast<size_t>(reader.first)];
         });
}

}  // namespace quern::emulated
