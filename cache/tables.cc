#include "cache/tables.h"

#include <algorithm>

namespace quern {

namespace {

constexpr size_t kHashBytes = 16;

Status misplaced(const char* kind) {
  return Status(ErrorCode::CORRUPT,
                std::string("the ") + kind + " record lies under another key than its own");
}

template <class T>
Result<T> read(Txn& txn, Table table, std::string_view key) {
  auto bytes = txn.get(table, key);
  if (!bytes) return bytes.status();
  return decode_record<T>(*bytes);
}

// All keys in `table` that begin with `first`.
Result<std::vector<std::string>> keys_of(Txn& txn, Table table, const Hash128& first) {
  std::vector<std::string> keys;
  const std::string prefix = table_key(first);
  const Status status = txn.scan(table, prefix, [&](std::string_view key, std::string_view) {
    if (!key.starts_with(prefix)) return false;
    keys.emplace_back(key);
    return true;
  });
  if (!status.ok()) return status;
  return keys;
}

// The second halves of all keys in `table` whose first half is `first`.
Result<std::vector<Hash128>> seconds_of(Txn& txn, Table table, const Hash128& first) {
  auto keys = keys_of(txn, table, first);
  if (!keys) return keys.status();
  std::vector<Hash128> seconds;
  for (const std::string& key : *keys)
    if (key.size() == 2 * kHashBytes) seconds.push_back(hash_of_table_key(key.substr(kHashBytes)));
  return seconds;
}

Timing timing_of(const TimingRecord& record) {
  return {std::string(record.device),
          record.program,
          record.cold_ns,
          record.hot_ns,
          record.samples,
          record.error,
          std::string(record.refusal),
          record.measured_ms};
}

Status write_timings(WriteTxn& write, const Hash128& key, const std::vector<Timing>& timings) {
  for (const Timing& timing : timings) {
    TimingRecord record;
    record.key = key;
    record.device = timing.device;
    record.program = timing.program;
    record.cold_ns = timing.cold_ns;
    record.hot_ns = timing.hot_ns;
    record.samples = timing.samples;
    record.error = timing.error;
    record.measured_ms = write.now_ms;
    record.refusal = timing.refusal;
    const std::string at = timing_key(key, timing.device, timing.program);
    if (Status status = write.txn.put(Table::timings, at, encode_record(record)); !status.ok()) return status;
  }
  return {};
}

Status remove_timings(Txn& txn, const Hash128& key) {
  auto keys = keys_of(txn, Table::timings, key);
  if (!keys) return keys.status();
  for (const std::string& one : *keys)
    if (Status status = txn.remove(Table::timings, one); !status.ok()) return status;
  return {};
}

Status write_programs(WriteTxn& write, const Hash128& key, const std::string& programs) {
  return write.txn.put(Table::programs, table_key(key), encode_record(ProgramsRecord{key, programs}));
}

// The tuning record as it is, or the first one.
TuningRecord tuning_of(Txn& txn, const Hash128& key) {
  const auto record = read_tuning(txn, key);
  return record.ok() ? *record : TuningRecord{key, 0, {}, 0};
}

Status write_tuning(WriteTxn& write, const TuningRecord& record) {
  return write.txn.put(Table::tuning, table_key(record.key), encode_record(record));
}

Status write_usage(WriteTxn& write, const Hash128& key, uint64_t generation, int64_t used_ms) {
  UsageRecord usage;
  usage.key = key;
  usage.sequence = ++write.counters.sequence;
  usage.generation = generation;
  usage.used_ms = used_ms;
  return write.txn.put(Table::usage, table_key(key), encode_record(usage));
}

// What a plan that stands was made from outlives later searches that found nothing better.
Status write_findings(WriteTxn& write, const Hash128& key, Findings findings, uint64_t generation) {
  const uint32_t timeouts = findings.timeouts;
  findings.generation = generation;
  if (const auto old = read_findings(write.txn, key); generation == 0 && old.ok() && old->generation > 0) {
    Findings kept = findings_of(*old);
    kept.report = std::move(findings.report);
    kept.state = std::move(findings.state);
    findings = std::move(kept);
  }
  const FindingsRecord record{key,
                              findings.generation,
                              findings.reason,
                              findings.report,
                              findings.mugraph,
                              findings.schedule,
                              findings.cuda,
                              findings.state};
  Status status = write.txn.put(Table::findings, table_key(key), encode_record(record));
  TuningRecord tuning = tuning_of(write.txn, key);
  if (!status.ok() || tuning.timeouts == timeouts) return status;
  tuning.timeouts = timeouts;
  return write_tuning(write, tuning);
}

// Of two plans of one tier the one whose program is faster on the device of the put. What stands and was
// never timed there, or is refused there, is slower than anything that was.
bool is_better(Txn& txn, const PlanRecord& stands, const PlanPut& put, const Hash128& key) {
  if (put.force || put.tier != stands.tier) return put.force || put.tier > stands.tier;
  if (!put.program) return false;
  const auto own = read_timing(txn, key, put.device, *put.program);
  if (!own.ok() || !(own->cold_ns > 0)) return false;
  const TuningRecord tuning = tuning_of(txn, key);
  if (tuning.generation != stands.generation) return true;
  const auto other = read_timing(txn, key, put.device, tuning.program);
  return !other.ok() || !(other->cold_ns > 0) || own->cold_ns < other->cold_ns;
}

// The generation that a plan gets when no readable plan stands under its key.
uint64_t first_generation(WriteTxn& write, const Hash128& key) {
  const auto usage = read_usage(write.txn, key);
  return std::max(write.counters.generation_floor, usage.ok() ? usage->generation : 0) + 1;
}

Status drop_request(Txn& txn, const Hash128& plan, const Hash128& request) {
  Status status = txn.remove(Table::requests, table_key(request));
  if (status.ok()) status = txn.remove(Table::request_lists, pair_key(plan, request));
  return status;
}

Status write_request(WriteTxn& write, const KeyMaterial& request, const Hash128& plan) {
  const Hash128 hash = request.key();
  if (const auto old = read_request(write.txn, hash); old.ok()) {
    if (old->material == request.bytes() && old->key == plan) return {};
    if (Status status = drop_request(write.txn, old->key, hash); !status.ok()) return status;
  }
  auto listed = seconds_of(write.txn, Table::request_lists, plan);
  if (!listed) return listed.status();
  if (listed->size() >= kMaxRequestsPerPlan)
    if (Status status = drop_request(write.txn, plan, listed->front()); !status.ok()) return status;
  RequestRecord record;
  record.material = request.bytes();
  record.key = plan;
  Status status = write.txn.put(Table::requests, table_key(hash), encode_record(record));
  if (status.ok()) status = write.txn.put(Table::request_lists, pair_key(plan, hash), {});
  return status;
}

constexpr std::string_view kPinPrefix = "pin ";  // of names in Table::meta; the key follows

std::string pin_name(const Hash128& key) { return std::string(kPinPrefix) + to_hex(key); }

// What a plan takes, about: its larger records.
uint64_t plan_bytes(Txn& txn, const Hash128& key) {
  uint64_t bytes = 0;
  for (const Table table : {Table::plans, Table::programs, Table::findings})
    if (const auto record = txn.get(table, table_key(key)); record.ok()) bytes += record->size();
  return bytes;
}

Status needs_plan(Txn& txn, const Hash128& key) {
  const auto stands = read_plan(txn, key);
  if (stands.ok() || txn.broken()) return stands.status();
  return Status(ErrorCode::NOT_FOUND, "the plan " + to_hex(key) + " is not there any more");
}

// The record of a table that has one for each plan.
template <class Record>
Result<Record> read_keyed(Txn& txn, Table table, const Hash128& key) {
  auto record = read<Record>(txn, table, table_key(key));
  if (record.ok() && record->key != key) return misplaced(table_name(table));
  return record;
}

Status collision(const Hash128& key) {
  return Status(ErrorCode::INTERNAL,
                "two different key materials have the hash " + to_hex(key) +
                    "; the plan that was there first stays, the other one is not stored");
}

}  // namespace

std::string pair_key(const Hash128& first, const Hash128& second) {
  return table_key(first) + table_key(second);
}

Result<PlanRecord> read_plan(Txn& txn, const Hash128& key) {
  auto record = read<PlanRecord>(txn, Table::plans, table_key(key));
  if (record.ok() && hash128(record->material) != key) return misplaced("plan");
  return record;
}

Result<RequestRecord> read_request(Txn& txn, const Hash128& key) {
  auto record = read<RequestRecord>(txn, Table::requests, table_key(key));
  if (record.ok() && hash128(record->material) != key) return misplaced("request");
  return record;
}

Result<RequestRecord> read_a_request(Txn& txn, const Hash128& plan) {
  const auto listed = seconds_of(txn, Table::request_lists, plan);
  if (!listed.ok()) return listed.status();
  return listed->empty() ? Status(ErrorCode::NOT_FOUND, "") : read_request(txn, listed->front());
}

Result<UsageRecord> read_usage(Txn& txn, const Hash128& key) {
  return read_keyed<UsageRecord>(txn, Table::usage, key);
}

Result<QuarantineRecord> read_quarantine(Txn& txn, const Hash128& key) {
  return read_keyed<QuarantineRecord>(txn, Table::quarantine, key);
}

Result<FindingsRecord> read_findings(Txn& txn, const Hash128& key) {
  return read_keyed<FindingsRecord>(txn, Table::findings, key);
}

Findings findings_of(const FindingsRecord& record) {
  return {record.generation,           std::string(record.reason),   std::string(record.report),
          std::string(record.mugraph), std::string(record.schedule), std::string(record.cuda),
          std::string(record.state)};
}

Result<MetaRecord> read_meta(Txn& txn, std::string_view name) {
  auto record = read<MetaRecord>(txn, Table::meta, name);
  if (record.ok() && record->name != name) return misplaced("meta");
  return record;
}

std::string timing_key(const Hash128& plan, std::string_view device, const Hash128& program) {
  return table_key(plan) + table_key(hash128(device)) + table_key(program);
}

Result<TimingRecord> read_timing(Txn& txn, const Hash128& key, std::string_view device,
                                 const Hash128& program) {
  auto record = read<TimingRecord>(txn, Table::timings, timing_key(key, device, program));
  if (record.ok() && (record->key != key || record->device != device || record->program != program))
    return misplaced("timing");
  return record;
}

Result<std::vector<Timing>> read_timings(Txn& txn, const Hash128& key) {
  auto keys = keys_of(txn, Table::timings, key);
  if (!keys) return keys.status();
  std::vector<Timing> timings;
  for (const std::string& one : *keys) {
    const auto record = read<TimingRecord>(txn, Table::timings, one);
    if (record.ok() && timing_key(record->key, record->device, record->program) == one)
      timings.push_back(timing_of(*record));
  }
  return timings;
}

Result<ProgramsRecord> read_programs(Txn& txn, const Hash128& key) {
  return read_keyed<ProgramsRecord>(txn, Table::programs, key);
}

Result<TuningRecord> read_tuning(Txn& txn, const Hash128& key) {
  return read_keyed<TuningRecord>(txn, Table::tuning, key);
}

Result<CountersRecord> read_counters(Txn& txn, bool* rebuilt) {
  auto stored = read<CountersRecord>(txn, Table::meta, kCountersKey);
  if (stored.ok()) return stored;
  CountersRecord counters;
  const Status status = txn.scan(Table::usage, {}, [&](std::string_view, std::string_view value) {
    if (const auto usage = decode_record<UsageRecord>(value); usage.ok()) {
      counters.sequence = std::max(counters.sequence, usage->sequence);
      counters.generation_floor = std::max(counters.generation_floor, usage->generation);
    }
    return true;
  });
  if (!status.ok()) return status;
  *rebuilt = stored.status().code() == ErrorCode::CORRUPT;
  return counters;
}

Status write_counters(Txn& txn, const CountersRecord& counters) {
  return txn.put(Table::meta, kCountersKey, encode_record(counters));
}

Result<PutOutcome> publish(WriteTxn& write, const PlanPut& put) {
  const Hash128 key = put.material.key();
  const auto stands = read_plan(write.txn, key);
  if (stands.ok() && stands->material != put.material.bytes()) return collision(key);
  if (!stands.ok() && write.txn.broken()) return stands.status();
  // Timings are of programs, not of the plan that stands: they are kept whichever of the two is better.
  if (Status status = write_timings(write, key, put.timings); !status.ok()) return status;
  PutOutcome outcome{false, key, 0, put.tier};
  if (stands.ok() && !is_better(write.txn, *stands, put, key)) {
    outcome.generation = stands->generation;
    outcome.tier = stands->tier;
  } else {
    outcome.published = true;
    outcome.generation = stands.ok() ? stands->generation + 1 : first_generation(write, key);
    PlanRecord record;
    record.material = put.material.bytes();
    record.generation = outcome.generation;
    record.tier = put.tier;
    record.created_ms = write.now_ms;
    record.plan = put.plan;
    Status status = write.txn.put(Table::plans, table_key(key), encode_record(record));
    if (status.ok() && put.program) {
      TuningRecord tuning = tuning_of(write.txn, key);
      tuning.generation = outcome.generation;
      tuning.program = *put.program;
      status = write_tuning(write, tuning);
    }
    if (!status.ok()) return status;
  }
  Status status = write_usage(write, key, outcome.generation, write.now_ms);
  if (status.ok() && put.request) status = write_request(write, *put.request, key);
  if (status.ok() && put.findings)
    status = write_findings(write, key, *put.findings, outcome.published ? outcome.generation : 0);
  if (status.ok() && put.programs) status = write_programs(write, key, *put.programs);
  if (!status.ok()) return status;
  return outcome;
}

Status add_request(WriteTxn& write, const KeyMaterial& request, const KeyMaterial& plan) {
  const Hash128 key = plan.key();
  const auto stands = read_plan(write.txn, key);
  if (!stands.ok() && write.txn.broken()) return stands.status();
  if (!stands.ok())
    return Status(ErrorCode::NOT_FOUND, "there is no plan " + to_hex(key) + " for the request");
  if (stands->material != plan.bytes()) return collision(key);
  return write_request(write, request, key);
}

Status add_timings(WriteTxn& write, const Hash128& key, const std::vector<Timing>& timings) {
  const Status status = needs_plan(write.txn, key);
  return status.ok() ? write_timings(write, key, timings) : status;
}

Status add_findings(WriteTxn& write, const Hash128& key, const Findings& findings,
                    const std::optional<std::string>& programs) {
  Status status = needs_plan(write.txn, key);
  if (status.ok()) status = write_findings(write, key, findings, 0);
  if (status.ok() && programs) status = write_programs(write, key, *programs);
  return status;
}

Status note_use(WriteTxn& write, const Hash128& key, int64_t used_ms) {
  if (const auto usage = read_usage(write.txn, key); usage.ok())
    return write_usage(write, key, usage->generation, used_ms);
  if (const auto plan = read_plan(write.txn, key); plan.ok())
    return write_usage(write, key, plan->generation, used_ms);
  return {};
}

Status remove_plan(WriteTxn& write, const Hash128& key) {
  uint64_t generation = 0;
  if (const auto usage = read_usage(write.txn, key); usage.ok())
    generation = usage->generation;
  else if (const auto plan = read_plan(write.txn, key); plan.ok())
    generation = plan->generation;
  write.counters.generation_floor = std::max(write.counters.generation_floor, generation);
  auto requests = seconds_of(write.txn, Table::request_lists, key);
  if (!requests) return requests.status();
  for (const Hash128& request : *requests)
    if (Status status = drop_request(write.txn, key, request); !status.ok()) return status;
  Status status = remove_timings(write.txn, key);
  for (const Table table : {Table::findings, Table::programs, Table::tuning, Table::usage, Table::plans})
    if (status.ok()) status = write.txn.remove(table, table_key(key));
  return status.ok() ? write.txn.remove(Table::meta, pin_name(key)) : status;
}

bool is_pinned(Txn& txn, const Hash128& key) { return read_meta(txn, pin_name(key)).ok(); }

Status add_pin(WriteTxn& write, const Hash128& key, uint64_t limit) {
  if (Status status = needs_plan(write.txn, key); !status.ok()) return status;
  uint64_t bytes = plan_bytes(write.txn, key);
  const Status scanned =
      write.txn.scan(Table::meta, kPinPrefix, [&](std::string_view name, std::string_view) {
        if (!name.starts_with(kPinPrefix)) return false;
        const auto pinned = parse_hash(std::string(name.substr(kPinPrefix.size())));
        if (pinned && !(*pinned == key)) bytes += plan_bytes(write.txn, *pinned);
        return true;
      });
  if (!scanned.ok()) return scanned;
  if (bytes > limit)
    return Status(ErrorCode::LIMIT, "pinned plans would take " + std::to_string(bytes) +
                                        " bytes, and may take " + std::to_string(limit) +
                                        ", half of cache-size");
  return write_meta(write, pin_name(key), "");
}

Status remove_pin(WriteTxn& write, const Hash128& key) {
  if (Status status = needs_plan(write.txn, key); !status.ok()) return status;
  return write.txn.remove(Table::meta, pin_name(key));
}

Status add_quarantine(WriteTxn& write, const Hash128& key, std::string_view reason) {
  const auto old = read_quarantine(write.txn, key);
  QuarantineRecord record;
  record.key = key;
  record.count = (old.ok() ? old->count : 0) + 1;
  record.last_ms = write.now_ms;
  record.reason = reason;
  return write.txn.put(Table::quarantine, table_key(key), encode_record(record));
}

Status write_meta(WriteTxn& write, std::string_view name, std::string_view value) {
  MetaRecord record;
  record.name = name;
  record.value = value;
  return write.txn.put(Table::meta, name, encode_record(record));
}

}  // namespace quern
