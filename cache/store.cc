#include "cache/store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <mutex>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "cache/audit.h"
#include "cache/eviction.h"
#include "cache/home.h"
#include "cache/rescue.h"
#include "cache/tables.h"
#include "cache/writer.h"

namespace quern {

namespace {

constexpr uint64_t kSmallWriteBytes = 512;  // what a write without a plan counts for in the queue
constexpr size_t kMaxMetaName = 256;
constexpr size_t kMaxRemembered = 4096;  // damaged records that are not reported again

int64_t system_now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

// Turns a write's outcome over to its caller: the value set by `apply` once the commit has succeeded.
template <class T>
Store::Done deliver(std::shared_ptr<T> value, std::function<void(Result<T>)> done) {
  return [value = std::move(value), done = std::move(done)](Status status) {
    if (!done) return;
    if (status.ok())
      done(std::move(*value));
    else
      done(std::move(status));
  };
}

uint64_t size_of(const Findings& findings) {
  return findings.reason.size() + findings.report.size() + findings.mugraph.size() +
         findings.schedule.size() + findings.cuda.size() + findings.state.size();
}

}  // namespace

class Store::Impl {
 public:
  explicit Impl(const StoreOptions& given) : options(given) {
    if (!options.now_ms) options.now_ms = system_now_ms;
    if (!options.report)
      options.report = [](const std::string& message) {
        std::fprintf(stderr, "quern cache: %s\n", message.c_str());
      };
  }

  Status open();
  void start_writer();
  Status note_uses(WriteTxn& write);
  Status make_room(WriteTxn& write);
  Status make_room_on_disk(const Status& failure, uint64_t bytes);
  Result<uint64_t> commit_alone(const std::function<Result<uint64_t>(WriteTxn&)>& apply);

  void submit(Writer::Apply apply, Done done, uint64_t bytes);
  Result<StoredPlan> load(Txn& txn, const Hash128& key, const std::string* material);
  Result<StoredPlan> load_with_use(Txn& txn, const Hash128& key);
  Result<StoredPlan> count_lookup(Result<StoredPlan> found, const Hash128& key);
  template <class T, class Look>
  Result<T> read(Look look);
  void damaged(Txn& txn, Table table, std::string key, const Status& why);
  void submit_repair(Table table, std::string key, Done done);

  StoreOptions options;
  StoreHome home;
  uint64_t budget = 0;

  std::mutex mutex;                                                // of the next three
  std::unordered_map<Hash128, std::pair<uint64_t, int64_t>> uses;  // key -> order of the last use, its time
  uint64_t use_order = 0;
  std::unordered_set<Hash128> reported;  // damage that was seen: hashes of key and bytes

  std::atomic<uint64_t> hits = 0, misses = 0, published = 0, outdone = 0, evicted = 0, damage_count = 0;
  uint64_t first_protected = 0;    // writer thread: the last sequence number before this group's writes
  std::unique_ptr<Writer> writer;  // last, so that it ends first; none when read-only
};

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

// A full disk takes no more pages: what is evicted leaves some in the file, and they can be used from the
// second transaction after that on. Nothing goes for a write that would not fit all the same.
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
  return plan;
}

Result<StoredPlan> Store::Impl::count_lookup(Result<StoredPlan> found, const Hash128& key) {
  ++(found.ok() ? hits : misses);
  if (found.ok() && writer) try {
      std::lock_guard guard(mutex);
      uses[key] = {++use_order, options.now_ms()};
    } catch (const std::bad_alloc&) {
      // The plan looks older than it is.
    }
  return found;
}

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

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;
bool Store::read_only() const { return impl_->home.read_only; }

Result<std::unique_ptr<Store>> Store::open(const StoreOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (Status status = impl->open(); !status.ok()) return status;
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Result<StoredPlan> Store::get(const KeyMaterial& material) {
  const Hash128 key = material.key();
  return impl_->count_lookup(
      impl_->read<StoredPlan>([&](Txn& txn) { return impl_->load(txn, key, &material.bytes()); }), key);
}

Result<StoredPlan> Store::find_request(const KeyMaterial& request) {
  Hash128 key;
  return impl_->count_lookup(impl_->read<StoredPlan>([&](Txn& txn) -> Result<StoredPlan> {
    const Hash128 hash = request.key();
    const auto record = read_request(txn, hash);
    if (record.status().code() == ErrorCode::CORRUPT)
      impl_->damaged(txn, Table::requests, table_key(hash), record.status());
    if (!record.ok() || record->material != request.bytes())
      return Status(ErrorCode::NOT_FOUND, "this request was not seen before");
    key = record->key;
    // Only a plan whose material was compared is ever listed with a request, and both go together.
    return impl_->load(txn, key, nullptr);
  }),
                             key);
}

Result<StoredPlan> Store::peek(const Hash128& key) {
  return impl_->read<StoredPlan>([&](Txn& txn) { return impl_->load_with_use(txn, key); });
}

void Store::touch(const Hash128& key) {
  if (!impl_->writer) return;
  std::lock_guard guard(impl_->mutex);
  impl_->uses[key] = {++impl_->use_order, impl_->options.now_ms()};
}

void Store::put(PlanPut put, PutDone done) {
  const uint64_t bytes = put.plan.size() + put.material.bytes().size() + kSmallWriteBytes +
                         (put.findings ? size_of(*put.findings) : 0) +
                         (put.programs ? put.programs->size() : 0) + put.timings.size() * kSmallWriteBytes;
  if (bytes > impl_->budget && impl_->writer) {
    if (done)
      done(Status(ErrorCode::LIMIT, "a plan of " + std::to_string(bytes) +
                                        " bytes is larger than the whole cache may be (" +
                                        std::to_string(impl_->budget) + " bytes)"));
    return;
  }
  // From here on the put is answered by what is shared, or, when there is no memory for that, by its own
  // words.
  std::shared_ptr<PutDone> answer;
  try {
    answer = std::make_shared<PutDone>(std::move(done));
    auto outcome = std::make_shared<PutOutcome>();
    auto counted = [impl = impl_.get(), answer](Result<PutOutcome> result) {
      if (result.ok()) ++(result->published ? impl->published : impl->outdone);
      if (*answer) (*answer)(std::move(result));
    };
    auto apply = [put = std::make_shared<PlanPut>(std::move(put)), outcome](WriteTxn& write) -> Status {
      auto result = publish(write, *put);
      if (!result) return result.status();
      *outcome = *result;
      return {};
    };
    impl_->submit(std::move(apply), deliver<PutOutcome>(outcome, std::move(counted)), bytes);
  } catch (const std::bad_alloc&) {
    if (const PutDone& known = answer ? *answer : done; known)
      known(Status(ErrorCode::OUT_OF_MEMORY, "out of memory"));
  }
}

Result<PutOutcome> Store::put_and_wait(PlanPut put) {
  std::promise<Result<PutOutcome>> answered;
  this->put(std::move(put), [&](Result<PutOutcome> result) { answered.set_value(std::move(result)); });
  return answered.get_future().get();
}

void Store::put_request(KeyMaterial request, KeyMaterial plan, Done done) {
  const uint64_t bytes = request.bytes().size() + plan.bytes().size() + kSmallWriteBytes;
  impl_->submit([request = std::move(request),
                 plan = std::move(plan)](WriteTxn& write) { return add_request(write, request, plan); },
                std::move(done), bytes);
}

void Store::put_timings(const Hash128& key, std::vector<Timing> timings, Done done) {
  const uint64_t bytes = timings.size() * kSmallWriteBytes;
  impl_->submit(
      [key, timings = std::move(timings)](WriteTxn& write) { return add_timings(write, key, timings); },
      std::move(done), bytes);
}

Result<std::vector<Timing>> Store::timings(const Hash128& key) {
  return impl_->read<std::vector<Timing>>([&](Txn& txn) { return read_timings(txn, key); });
}

Result<std::string> Store::programs(const Hash128& key) {
  return impl_->read<std::string>([&](Txn& txn) -> Result<std::string> {
    const auto record = read_programs(txn, key);
    if (record.status().code() == ErrorCode::CORRUPT)
      impl_->damaged(txn, Table::programs, table_key(key), record.status());
    if (!record.ok())
      return Status(ErrorCode::NOT_FOUND, "no programs of the plan " + to_hex(key) + " are stored");
    return std::string(record->programs);
  });
}

Tuning Store::tuning(const Hash128& key) {
  const auto found = impl_->read<Tuning>([&](Txn& txn) -> Result<Tuning> {
    const auto record = read_tuning(txn, key);
    if (record.status().code() == ErrorCode::CORRUPT)
      impl_->damaged(txn, Table::tuning, table_key(key), record.status());
    if (!record.ok()) return record.status();
    return Tuning{record->generation, record->program, record->timeouts};
  });
  return found.ok() ? *found : Tuning();
}

void Store::put_findings(const Hash128& key, Findings findings, std::optional<std::string> programs,
                         Done done) {
  const uint64_t bytes = size_of(findings) + (programs ? programs->size() : 0) + kSmallWriteBytes;
  impl_->submit([key, findings = std::move(findings), programs = std::move(programs)](
                    WriteTxn& write) { return add_findings(write, key, findings, programs); },
                std::move(done), bytes);
}

Result<Findings> Store::findings(const Hash128& key) {
  return impl_->read<Findings>([&](Txn& txn) -> Result<Findings> {
    const auto record = read_findings(txn, key);
    if (record.status().code() == ErrorCode::CORRUPT)
      impl_->damaged(txn, Table::findings, table_key(key), record.status());
    if (!record.ok())
      return Status(ErrorCode::NOT_FOUND, "no search for the plan " + to_hex(key) + " has ended");
    Findings findings = findings_of(*record);
    if (const auto tuning = read_tuning(txn, key); tuning.ok()) findings.timeouts = tuning->timeouts;
    return findings;
  });
}

void Store::remove(const Hash128& key, Done done) {
  impl_->submit(
      [key](WriteTxn& write) -> Status {
        const auto plan = write.txn.get(Table::plans, table_key(key));
        if (plan.status().code() == ErrorCode::NOT_FOUND)
          return Status(ErrorCode::NOT_FOUND, "there is no plan " + to_hex(key) + " in the cache");
        return plan.ok() ? remove_plan(write, key) : plan.status();
      },
      std::move(done), kSmallWriteBytes);
}

void Store::quarantine(const Hash128& key, std::string reason, Done done) {
  impl_->submit(
      [key, reason = std::move(reason)](WriteTxn& write) { return add_quarantine(write, key, reason); },
      std::move(done), kSmallWriteBytes);
}

void Store::release(const Hash128& key, Done done) {
  impl_->submit([key](WriteTxn& write) { return write.txn.remove(Table::quarantine, table_key(key)); },
                std::move(done), kSmallWriteBytes);
}

Result<Quarantine> Store::find_quarantine(const Hash128& key) {
  return impl_->read<Quarantine>([&](Txn& txn) -> Result<Quarantine> {
    const auto record = read_quarantine(txn, key);
    if (record.status().code() == ErrorCode::CORRUPT)
      impl_->damaged(txn, Table::quarantine, table_key(key), record.status());
    if (!record.ok()) return Status(ErrorCode::NOT_FOUND, "the key " + to_hex(key) + " is not in quarantine");
    return Quarantine{record->count, record->last_ms, std::string(record->reason)};
  });
}

void Store::set_meta(std::string name, std::string value, Done done) {
  if (name.empty() || name.size() > kMaxMetaName || name[0] == '\0') {
    if (done)
      done(Status(ErrorCode::INVALID_ARGUMENT,
                  "a meta name has 1 to " + std::to_string(kMaxMetaName) + " bytes"));
    return;
  }
  const uint64_t bytes = name.size() + value.size() + kSmallWriteBytes;
  impl_->submit([name = std::move(name),
                 value = std::move(value)](WriteTxn& write) { return write_meta(write, name, value); },
                std::move(done), bytes);
}

Result<std::string> Store::meta(std::string_view name) {
  return impl_->read<std::string>([&](Txn& txn) -> Result<std::string> {
    const auto record = read_meta(txn, name);
    if (record.status().code() == ErrorCode::CORRUPT)
      impl_->damaged(txn, Table::meta, std::string(name), record.status());
    if (!record.ok()) return Status(ErrorCode::NOT_FOUND, "the cache knows no " + std::string(name));
    return std::string(record->value);
  });
}

Status Store::list(const std::function<bool(const StoredPlan&)>& visit, const Hash128* after) {
  if (!impl_->home.database) return {};
  const auto each = [&](Txn& txn, std::string_view key, std::string_view) {
    if (key.size() != sizeof(Hash128)) return true;  // verify_all reports it
    const auto plan = impl_->load_with_use(txn, hash_of_table_key(key));
    return plan.ok() ? visit(*plan) : true;
  };
  // The smallest table key above `after` is its own with a zero byte more.
  return walk(*impl_->home.database, Table::plans, each,
              after ? table_key(*after) + std::string(1, '\0') : std::string());
}

Result<StoreStats> Store::stats() {
  StoreStats stats;
  stats.read_only = impl_->home.read_only;
  stats.max_bytes = impl_->budget;
  stats.hits = impl_->hits;
  stats.misses = impl_->misses;
  stats.published = impl_->published;
  stats.outdone = impl_->outdone;
  stats.evicted = impl_->evicted;
  stats.damaged = impl_->damage_count;
  if (impl_->writer) {
    stats.commits = impl_->writer->commits();
    stats.failed_commits = impl_->writer->failed_commits();
    stats.queued_writes = impl_->writer->queued();
  }
  if (!impl_->home.database) return stats;
  stats.file_bytes = impl_->home.database->file_bytes();
  stats.map_bytes = impl_->home.database->map_bytes();
  stats.rescues = impl_->home.database->rescues();
  return impl_->read<StoreStats>([&](Txn& txn) -> Result<StoreStats> {
    const std::pair<Table, uint64_t*> counts[] = {{Table::plans, &stats.plans},
                                                  {Table::requests, &stats.requests},
                                                  {Table::timings, &stats.timings},
                                                  {Table::quarantine, &stats.quarantined}};
    for (const auto& [table, count] : counts) *count = txn.count(table);
    stats.live_bytes = txn.live_bytes();
    if (const auto rescue = read_meta(txn, kMetaRescue); rescue.ok()) stats.last_rescue = rescue->value;
    return stats;
  });
}

Result<VerifyReport> Store::verify_all(const std::function<void(uint64_t done, uint64_t total)>& progress) {
  if (!impl_->home.database) return VerifyReport();
  // Repairs wait for the end, so that the report says how things were found.
  std::vector<std::pair<Table, std::string>> repairs;
  auto report = audit(*impl_->home.database, progress, [&](Table table, std::string key) {
    repairs.push_back({table, std::move(key)});
  });
  if (!report) return report;
  impl_->damage_count += report->damage.size();
  if (!impl_->writer) return report;
  for (auto& [table, key] : repairs) impl_->submit_repair(table, std::move(key), {});
  (void)impl_->writer->flush();  // what could not be removed is found again next time
  return report;
}

Status Store::flush() { return impl_->writer ? impl_->writer->flush() : Status(); }

}  // namespace quern
