#include "cache/recent_plans.h"

#include <algorithm>
#include <span>

namespace quern {

namespace {

constexpr size_t kEntryBytes = 512;  // besides its texts
constexpr size_t kLargeParts = 8;    // a plan that takes more than this part of all is not kept

}  // namespace

size_t RecentPlans::bytes_of(const Entry& entry) {
  return kEntryBytes + entry.request.size() + entry.plan->material.size() + entry.plan->plan.size();
}

void RecentPlans::drop(Entries::iterator entry) {
  bytes_ -= bytes_of(*entry);
  by_hash_.erase(entry->hash);
  entries_.erase(entry);
}

std::shared_ptr<const StoredPlan> RecentPlans::find(const Hash128& hash, const KeyMaterial& request) {
  std::lock_guard lock(mutex_);
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end() || found->second->request != request.bytes()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->plan;
}

void RecentPlans::add(uint64_t age, const Hash128& hash, const KeyMaterial& request,
                      std::shared_ptr<const StoredPlan> plan) {
  Entries entry;
  entry.push_front({hash, request.bytes(), table_key(plan->key), std::move(plan)});
  const size_t bytes = bytes_of(entry.front());
  std::lock_guard lock(mutex_);
  if (age != age_ || bytes > max_bytes_ / kLargeParts) return;
  if (const auto found = by_hash_.find(hash); found != by_hash_.end()) drop(found->second);
  by_hash_[hash] = entry.begin();
  entries_.splice(entries_.begin(), entry);
  bytes_ += bytes;
  while (bytes_ > max_bytes_) drop(std::prev(entries_.end()));
}

uint64_t RecentPlans::age() const {
  std::lock_guard lock(mutex_);
  return age_;
}

// Which plan a request means never changes; the plan may. The writes of one table are in order of their keys.
void RecentPlans::forget(const Batch* batch) {
  std::span<const Batch::Write> plans;
  if (batch) {
    const auto is_plan = [](const Batch::Write& write) { return write.table == Table::plans; };
    const auto first = std::ranges::find_if(batch->writes, is_plan);
    plans = {first, std::find_if_not(first, batch->writes.end(), is_plan)};
    if (plans.empty()) return;
  }
  std::lock_guard lock(mutex_);
  ++age_;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (!batch || std::ranges::binary_search(plans, entry->plan_key, {}, &Batch::Write::key)) drop(entry);
    entry = next;
  }
}

}  // namespace quern
