#include "capi/plan_table.h"

#include <algorithm>

namespace quern {

// Mixes what is known to be well mixed with short parts; same() compares the whole.
Hash128 PlanTable::hash(const PlanRequest& request) {
  const std::hash<std::string_view> hash;
  const uint64_t target = hash(request.target) + 31 * hash(request.constraints);
  return {request.graph_hash.high ^ target,
          request.graph_hash.low + (target * 31 + request.numerics) * 0x9e3779b97f4a7c15u};
}

bool PlanTable::same(const Request& stored, const PlanRequest& request) {
  return stored.numerics == request.numerics && stored.target == request.target &&
         stored.constraints == request.constraints && stored.graph == request.graph;
}

PlanTable::Found PlanTable::find(const PlanRequest& request) {
  const std::lock_guard lock(mutex_);
  const auto entry = requests_.find(hash(request));
  if (entry == requests_.end() || !same(entry->second, request)) return {};
  Record& record = records_.at(entry->second.key);
  uses_.splice(uses_.begin(), uses_, record.use);
  return {record.plan, std::exchange(record.fetch, false)};
}

PlanTable::Put PlanTable::put(const PlanRequest& request, PlanRef plan) {
  const Hash128 key = plan->reply().key, id = hash(request);
  const std::lock_guard lock(mutex_);
  expected_.remove(key);
  const auto [found, inserted] = records_.try_emplace(key);
  Record& record = found->second;
  if (inserted) {
    uses_.push_front(key);
    record.use = uses_.begin();
  }
  // The same generation is the same plan: the handle that is there may have its module loaded.
  const bool stored = plan->reply().generation > 0;
  if (!record.plan || !stored || plan->reply().generation > record.plan->reply().generation)
    record.plan = std::move(plan);
  if (record.announced <= record.plan->reply().generation) record.fetch = false;

  const auto entry = requests_.find(id);
  if (entry == requests_.end() || !same(entry->second, request) || entry->second.key != key) {
    // What had this hash or another key before is forgotten; its record stays until it is evicted.
    if (entry != requests_.end()) std::erase(records_.at(entry->second.key).requests, id);
    requests_.insert_or_assign(id, Request{std::string(request.graph), std::string(request.target),
                                           std::string(request.constraints), request.numerics, key});
    record.requests.push_back(id);
  }
  Put result{record.plan, {}};
  evict_beyond_capacity(result.evicted);
  return result;
}

void PlanTable::evict_beyond_capacity(std::vector<Hash128>& evicted) {
  for (; records_.size() > capacity_; uses_.pop_back()) {
    const auto last = records_.find(uses_.back());
    for (const Hash128& id : last->second.requests) requests_.erase(id);
    evicted.push_back(last->first);
    records_.erase(last);
  }
}

void PlanTable::expect(const Hash128& key, std::vector<Hash128>& evicted) {
  const std::lock_guard lock(mutex_);
  if (records_.count(key)) return;
  expected_.remove(key);
  expected_.push_front(key);
  for (; expected_.size() > capacity_; expected_.pop_back()) evicted.push_back(expected_.back());
}

bool PlanTable::give_up(const Hash128& key) {
  const std::lock_guard lock(mutex_);
  return expected_.remove(key) > 0;
}

bool PlanTable::announce(const Hash128& key, uint64_t generation) {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return generation > 0 && expected_.remove(key) > 0;
  Record& record = found->second;
  if (generation <= record.plan->reply().generation) return false;
  const bool news = generation > record.announced;
  record.announced = std::max(record.announced, generation);
  record.fetch = true;
  return news;
}

void PlanTable::retry(const Hash128& key) {
  const std::lock_guard lock(mutex_);
  if (const auto found = records_.find(key); found != records_.end()) found->second.fetch = true;
}

bool PlanTable::outdated(const Hash128& key, uint64_t generation) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return false;
  return std::max(found->second.announced, found->second.plan->reply().generation) > generation;
}

}  // namespace quern
