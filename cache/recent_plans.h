// Plans that were asked for not long ago, by the request: read out of the file and checked once, then handed
// out as they are. Any thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "cache/engine.h"
#include "cache/store.h"

namespace quern {

class RecentPlans {
 public:
  explicit RecentPlans(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null when it is not known.
  std::shared_ptr<const StoredPlan> find(const Hash128& hash, const KeyMaterial& request);
  // Says what was read from the file; `age` is what age() said before that. What has changed since then is
  // forgotten.
  void add(uint64_t age, const Hash128& hash, const KeyMaterial& request,
           std::shared_ptr<const StoredPlan> plan);
  uint64_t age() const;

  // The file has changed: by this batch, or, if it is null, in a way that is not known. Allocates nothing.
  void forget(const Batch* batch);

 private:
  struct Entry {
    Hash128 hash;
    std::string request;   // the hash is no proof
    std::string plan_key;  // in the table of plans
    std::shared_ptr<const StoredPlan> plan;
  };
  using Entries = std::list<Entry>;
  static size_t bytes_of(const Entry& entry);
  void drop(Entries::iterator entry);

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  uint64_t age_ = 0;
  size_t bytes_ = 0;
  Entries entries_;  // used last first
  std::unordered_map<Hash128, Entries::iterator> by_hash_;
};

}  // namespace quern
