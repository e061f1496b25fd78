// The in-process table: which plan answers which request, so that a graph seen before costs no system call.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capi/plan_handle.h"
#include "core/base/hash.h"

namespace quern {

// A request as the table tells them apart.
struct PlanRequest {
  std::string_view graph;  // text
  Hash128 graph_hash;      // of that text
  std::string_view target;
  uint32_t numerics = 0;
  std::string_view constraints = {};  // text
};

// Thread-safe. Holds one reference to each of at most `capacity` plans; the least recently used go first.
class PlanTable {
 public:
  explicit PlanTable(size_t capacity) : capacity_(capacity) {}

  struct Found {
    PlanRef plan;        // null: not here
    bool fetch = false;  // a better one was announced, and this caller is the one to fetch it
  };
  Found find(const PlanRequest& request);

  struct Put {
    PlanRef plan;                  // to hand out: the one that was there if it is the same
    std::vector<Hash128> evicted;  // keys that are no longer here
  };
  // `plan` answers `request`. Replaces an older generation of the same key, for all requests of that key.
  Put put(const PlanRequest& request, PlanRef plan);

  // Somebody waits for a first plan of `key`. Keys that this pushed out are added to `evicted`.
  void expect(const Hash128& key, std::vector<Hash128>& evicted);
  // The daemon has this generation of `key`. True when that is news, and better than what is here, or
  // expected.
  bool announce(const Hash128& key, uint64_t generation);
  // There will be no plan of `key`. True when one was expected.
  bool give_up(const Hash128& key);
  // The fetch that find() gave out came to nothing for now: the next find() gives it out again.
  void retry(const Hash128& key);
  // Whether a better generation than `generation` is known of.
  bool outdated(const Hash128& key, uint64_t generation) const;

 private:
  // Several requests can have one key: graphs that differ in names only.
  struct Record {
    PlanRef plan;
    uint64_t announced = 0;
    bool fetch = false;
    std::vector<Hash128> requests;
    std::list<Hash128>::iterator use;
  };
  struct Request {
    std::string graph, target, constraints;
    uint32_t numerics;
    Hash128 key;
  };
  static Hash128 hash(const PlanRequest& request);
  static bool same(const Request& stored, const PlanRequest& request);
  void evict_beyond_capacity(std::vector<Hash128>& evicted);

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::unordered_map<Hash128, Request> requests_;  // by hash(request)
  std::unordered_map<Hash128, Record> records_;    // by key
  std::list<Hash128> uses_;                        // keys, the last used first
  std::list<Hash128> expected_;                    // the last first; no more than there may be plans
};

}  // namespace quern
