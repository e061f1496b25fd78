#include "cache/store.h"

#include <future>
#include <new>

#include "cache/audit.h"
#include "cache/rescue.h"
#include "cache/store_impl.h"

namespace quern {

namespace {

constexpr size_t kMaxMetaName = 256;

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
  auto found = impl_->read<StoredPlan>([&](Txn& txn) { return impl_->load(txn, key, &material.bytes()); });
  impl_->count_lookup(found.ok() ? &key : nullptr);
  return found;
}

Result<std::shared_ptr<const StoredPlan>> Store::find_request(const KeyMaterial& request) {
  auto found = impl_->load_by_request(request);
  impl_->count_lookup(found.ok() ? &(*found)->key : nullptr);
  return found;
}

std::shared_ptr<const StoredPlan> Store::find_recent(const KeyMaterial& request) {
  auto found = impl_->recent.find(request.key(), request);
  if (found) impl_->count_lookup(&found->key);
  return found;
}

Result<std::string> Store::request_of(const Hash128& key) {
  return impl_->read<std::string>([&](Txn& txn) -> Result<std::string> {
    const auto record = read_a_request(txn, key);
    if (!record.ok()) return Status(ErrorCode::NOT_FOUND, "no request of this plan is known");
    const auto parts = parse_key_material(record->material);
    return parts.ok() ? std::string(key_part(*parts, "request")) : Result<std::string>(parts.status());
  });
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

void Store::pin(const Hash128& key, bool pinned, Done done) {
  impl_->submit([key, pinned, limit = impl_->budget / 2](
                    WriteTxn& write) { return pinned ? add_pin(write, key, limit) : remove_pin(write, key); },
                std::move(done), kSmallWriteBytes);
}

bool Store::is_pinned(const Hash128& key) {
  const auto found = impl_->read<bool>([&](Txn& txn) -> Result<bool> { return quern::is_pinned(txn, key); });
  return found.ok() && *found;
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
