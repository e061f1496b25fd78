#include "cache/store_impl.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "cache/audit.h"
#include "cache/eviction.h"

namespace quern {

namespace {

constexpr size_t kMaxRemembered = 4096;  // damaged records that are not reported again

// To some milliseconds: each hit asks for it.
int64_t system_now_ms() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

Store::Impl::Impl(const StoreOptions& given) : options(given), recent(given.recent_bytes) {
  if (!options.now_ms) options.now_ms = system_now_ms;
  if (!options.report)
    options.report = [](const std::string& message) {
      std::fprintf(stderr, "quern cache: %s\n", message.c_str());
    };
}

Status Store::Impl::open() {
  auto opened = open_home(options);
  if (!opened) return opened.status();
  home = std::move(*opened);
  const uint64_t map = home.database ? home.database->map_bytes() : options.map_bytes;
  // A quarter stays free for what a transaction copies before it frees, and for fragmentation.
  budget = std::min(options.max_bytes, map / 4 * 3);
  if (budget < options.max_bytes)
    options.report("the cache keeps at most " + std::to_string(budget >> 20) +
                   " MiB, because its map has only " + std::to_string(map >> 20) + " MiB");
  if (!home.read_only) start_writer();
  return {};
}

void Store::Impl::start_writer() {
  Writer::Options to;
  to.max_queued_bytes = options.max_queued_bytes;
  to.idle_ms = options.touch_interval_ms;
  to.now_ms = options.now_ms;
  to.commit_fault = options.commit_fault;
  to.report = options.report;
  to.wants_commit = [this] {
    std::lock_guard guard(mutex);
    return !uses.empty() || home.database->is_suspected();
  };
  to.recover = [this](const Status& failure, uint64_t bytes) {
    return failure.code() == ErrorCode::STORAGE_FULL ? make_room_on_disk(failure, bytes)
                                                     : home.database->recover(failure);
  };
  to.before = [this](WriteTxn& write) { return note_uses(write); };
  to.after = [this](WriteTxn& write) { return make_room(write); };
  home.database->on_change([this](const Batch* batch) { recent.forget(batch); });
  writer = std::make_unique<Writer>(*home.database, std::move(to));
  // So that the file is looked at now, and not when the first plan is waited for.
  submit([](WriteTxn&) { return Status(); }, {}, 0);
}

// Uses that are lost with a failed commit only make their plans look older than they are.
Status Store::Impl::note_uses(WriteTxn& write) {
  std::unordered_map<Hash128, std::pair<uint64_t, int64_t>> taken;
  {
    std::lock_guard guard(mutex);
    taken.swap(uses);
  }
  std::vector<std::pair<uint64_t, Hash128>> in_order;
  for (const auto& [key, use] : taken) in_order.push_back({use.first, key});
  std::sort(in_order.begin(), in_order.end());
  for (const auto& [order, key] : in_order)
    if (Status status = note_use(write, key, taken[key].second); !status.ok()) return status;
  first_protected = write.counters.sequence;
  return {};
}

Status Store::Impl::make_room(WriteTxn& write) {
  const auto count = evict(write, budget, first_protected);
  if (!count) return count.status();
  evicted += *count;
  return {};
}

// Beside the groups, on the writer's thread.
Result<uint64_t> Store::Impl::commit_alone(const std::function<Result<uint64_t>(WriteTxn&)>& apply) {
  auto txn = Txn::begin(*home.database, Txn::Mode::write);
  if (!txn) return txn.status();
  bool rebuilt = false;
  const auto counters = read_counters(*txn, &rebuilt);
  if (!counters) return counters.status();
  WriteTxn write{*txn, *counters, options.now_ms()};
  ++write.counters.sequence;
  auto count = apply(write);
  if (!count) return count;
  Status status = write_counters(*txn, write.counters);
  if (status.ok()) status = txn->commit(options.commit_fault ? options.commit_fault() : 0);
  if (!status.ok()) return status;
  return count;
}

// A full disk gives the file no more pages, but evicted plans free some inside of it. LMDB reuses them two
// transactions later, hence the two empty ones below. Nothing is evicted for a write that would not fit
// anyway.
Status Store::Impl::make_room_on_disk(const Status& failure, uint64_t bytes) {
  const auto gone = commit_alone([&](WriteTxn& write) -> Result<uint64_t> {
    const uint64_t live = write.txn.live_bytes(), needed = bytes + bytes / 2;
    if (live <= needed) return uint64_t{0};
    return evict(write, std::min(live - needed, live - 1), write.counters.sequence);
  });
  if (!gone.ok() || *gone == 0) return failure;
  evicted += *gone;
  options.report(failure.message() + "; " + std::to_string(*gone) + " plans were evicted to make room");
  for (int i = 0; i < 2; ++i)
    if (const auto done = commit_alone([](WriteTxn&) { return Result<uint64_t>(uint64_t{0}); }); !done.ok())
      return done.status();
  return {};
}

void Store::Impl::submit(Writer::Apply apply, Done done, uint64_t bytes) {
  if (writer) return writer->submit(std::move(apply), std::move(done), bytes);
  if (done)
    done(Status(ErrorCode::PERMISSION, "the cache in " + options.directory +
                                           " is read-only: make it writable and restart the daemon"));
}

// The plan under `key`, if its material is `material` (when given). Damage is dealt with and becomes a miss.
Result<StoredPlan> Store::Impl::load(Txn& txn, const Hash128& key, const std::string* material) {
  const auto record = read_plan(txn, key);
  if (record.status().code() == ErrorCode::CORRUPT)
    damaged(txn, Table::plans, table_key(key), record.status());
  if (!record.ok()) return Status(ErrorCode::NOT_FOUND, "there is no plan " + to_hex(key) + " in the cache");
  if (material && record->material != *material)
    return Status(ErrorCode::NOT_FOUND,
                  "the plan " + to_hex(key) + " belongs to another key material with this hash");
  StoredPlan plan;
  plan.key = key;
  plan.material = record->material;
  plan.generation = record->generation;
  plan.tier = record->tier;
  plan.created_ms = record->created_ms;
  plan.plan = record->plan;
  return plan;
}

// For people: a hit does without its last use.
Result<StoredPlan> Store::Impl::load_with_use(Txn& txn, const Hash128& key) {
  auto plan = load(txn, key, nullptr);
  if (!plan) return plan;
  const auto usage = read_usage(txn, key);
  if (usage.status().code() == ErrorCode::CORRUPT) damaged(txn, Table::usage, table_key(key), usage.status());
  plan->used_ms = usage.ok() ? usage->used_ms : plan->created_ms;
  // Uses are written now and then; the latest are known here.
  std::lock_guard guard(mutex);
  if (const auto found = uses.find(key); found != uses.end()) plan->used_ms = found->second.second;
  return plan;
}

Result<std::shared_ptr<const StoredPlan>> Store::Impl::load_by_request(const KeyMaterial& request) {
  using Found = std::shared_ptr<const StoredPlan>;
  const Hash128 hash = request.key();
  if (auto known = recent.find(hash, request)) return known;
  const uint64_t age = recent.age();
  return read<Found>([&](Txn& txn) -> Result<Found> {
    const auto record = read_request(txn, hash);
    if (record.status().code() == ErrorCode::CORRUPT)
      damaged(txn, Table::requests, table_key(hash), record.status());
    if (!record.ok() || record->material != request.bytes())
      return Status(ErrorCode::NOT_FOUND, "this request was not seen before");
    // Only a plan whose material was compared is ever listed with a request, and both go together.
    auto plan = load(txn, record->key, nullptr);
    if (!plan) return plan.status();
    auto found = std::make_shared<const StoredPlan>(std::move(*plan));
    recent.add(age, hash, request, found);
    return found;
  });
}

void Store::Impl::count_lookup(const Hash128* found) {
  ++(found ? hits : misses);
  if (found && writer) try {
      std::lock_guard guard(mutex);
      uses[*found] = {++use_order, options.now_ms()};
    } catch (const std::bad_alloc&) {
      // The plan looks older than it is.
    }
}

void Store::Impl::damaged(Txn& txn, Table table, std::string key, const Status& why) {
  if (txn.broken()) return;  // not the record, but its pages: read() sees to that
  // The same bytes are reported once: a reader may still see them after they have been removed.
  const auto bytes = txn.get(table, key);
  const Hash128 what = hash128(key + std::string(bytes.ok() ? *bytes : ""));
  {
    std::lock_guard guard(mutex);
    if (reported.size() >= kMaxRemembered) reported.clear();
    if (!reported.insert(what).second) return;
  }
  ++damage_count;
  options.report("a damaged record in the table " + std::string(table_name(table)) + " under " +
                 printed_key(table, key) + " is " + (writer ? "removed: " : "ignored: ") + why.message());
  const auto retry_if_failed = [this, what](const Status& status) {
    std::lock_guard guard(mutex);
    if (!status.ok()) reported.erase(what);
  };
  if (writer) submit_repair(table, std::move(key), retry_if_failed);
}

void Store::Impl::submit_repair(Table table, std::string key, Done done) {
  const auto repair = [table, key = std::move(key)](WriteTxn& write) {
    return remove_damaged(write, table, key);
  };
  submit(repair, std::move(done), kSmallWriteBytes);
}

}  // namespace quern
