// The inside of a store: its home, its writer, and what is done about damage and full disks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "cache/home.h"
#include "cache/recent_plans.h"
#include "cache/store.h"
#include "cache/tables.h"
#include "cache/writer.h"

namespace quern {

inline constexpr uint64_t kSmallWriteBytes = 512;  // what a write without a plan counts for in the queue

class Store::Impl {
 public:
  explicit Impl(const StoreOptions& given);

  Status open();
  void start_writer();
  Status note_uses(WriteTxn& write);
  Status make_room(WriteTxn& write);
  Status make_room_on_disk(const Status& failure, uint64_t bytes);
  Result<uint64_t> commit_alone(const std::function<Result<uint64_t>(WriteTxn&)>& apply);

  void submit(Writer::Apply apply, Done done, uint64_t bytes);
  Result<StoredPlan> load(Txn& txn, const Hash128& key, const std::string* material);
  Result<StoredPlan> load_with_use(Txn& txn, const Hash128& key);
  Result<std::shared_ptr<const StoredPlan>> load_by_request(const KeyMaterial& request);
  void count_lookup(const Hash128* found);
  template <class T, class Look>
  Result<T> read(Look look);
  void damaged(Txn& txn, Table table, std::string key, const Status& why);
  void submit_repair(Table table, std::string key, Done done);

  StoreOptions options;
  StoreHome home;
  RecentPlans recent;
  uint64_t budget = 0;

  std::mutex mutex;                                                // of the next three
  std::unordered_map<Hash128, std::pair<uint64_t, int64_t>> uses;  // key -> order of the last use, its time
  uint64_t use_order = 0;
  std::unordered_set<Hash128> reported;  // damage that was seen: hashes of key and bytes

  std::atomic<uint64_t> hits = 0, misses = 0, published = 0, outdone = 0, evicted = 0, damage_count = 0;
  uint64_t first_protected = 0;    // writer thread: the last sequence number before this group's writes
  std::unique_ptr<Writer> writer;  // last, so that it ends first; none when read-only
};

// Runs `look` in a read transaction. Where nothing can be read, nothing is there: that is reported, and a
// miss.
template <class T, class Look>
Result<T> Store::Impl::read(Look look) try {
  if (!home.database) return Status(ErrorCode::NOT_FOUND, "the cache is empty and cannot be written");
  auto txn = Txn::begin(*home.database, Txn::Mode::read);
  if (!txn) return txn.status();
  Result<T> found = look(*txn);
  if (txn->broken() && !home.database->is_suspected()) {
    home.database->suspect(found.status());
    if (writer) submit([](WriteTxn&) { return Status(); }, {}, kSmallWriteBytes);
  }
  return found;
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::OUT_OF_MEMORY, "out of memory");
}

}  // namespace quern
