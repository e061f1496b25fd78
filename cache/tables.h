// What one transaction does to the tables: the rules that tie a plan to its timings, requests and usage. No
// threads here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/database.h"
#include "cache/entry.h"
#include "cache/store.h"

namespace quern {

// A plan has at most so many requests in the front index; one more replaces another, so that a client that
// renames its tensors on every call cannot fill the store.
inline constexpr size_t kMaxRequestsPerPlan = 16;

// A transaction that writes, with what its writes share.
struct WriteTxn {
  Txn& txn;
  CountersRecord counters;
  int64_t now_ms;
};

// Reads. NOT_FOUND without a message for what is not there, CORRUPT for a damaged or misplaced record. Views
// live as the transaction's bytes do.
Result<PlanRecord> read_plan(Txn& txn, const Hash128& key);
Result<RequestRecord> read_request(Txn& txn, const Hash128& key);
// The first of those that lead to the plan.
Result<RequestRecord> read_a_request(Txn& txn, const Hash128& plan);
Result<UsageRecord> read_usage(Txn& txn, const Hash128& key);
Result<QuarantineRecord> read_quarantine(Txn& txn, const Hash128& key);
Result<FindingsRecord> read_findings(Txn& txn, const Hash128& key);
Findings findings_of(const FindingsRecord& record);
Result<MetaRecord> read_meta(Txn& txn, std::string_view name);
Result<TimingRecord> read_timing(Txn& txn, const Hash128& key, std::string_view device,
                                 const Hash128& program);
Result<ProgramsRecord> read_programs(Txn& txn, const Hash128& key);
Result<TuningRecord> read_tuning(Txn& txn, const Hash128& key);
bool is_pinned(Txn& txn, const Hash128& key);
// The key of a record that belongs to two hashes (a plan and a request); those of one `first` lie side by
// side.
std::string pair_key(const Hash128& first, const Hash128& second);
std::string timing_key(const Hash128& plan, std::string_view device, const Hash128& program);
// All undamaged timings of a key.
Result<std::vector<Timing>> read_timings(Txn& txn, const Hash128& key);
// Damaged counters are found again from the usage records; `rebuilt` says so.
inline constexpr std::string_view kCountersKey{"\0counters", 9};  // in Table::meta; no name starts like that
Result<CountersRecord> read_counters(Txn& txn, bool* rebuilt);
Status write_counters(Txn& txn, const CountersRecord& counters);

// Writes. An error that leaves the transaction whole (LIMIT, NOT_FOUND, INTERNAL) has changed nothing.
Result<PutOutcome> publish(WriteTxn& write, const PlanPut& put);
Status add_request(WriteTxn& write, const KeyMaterial& request, const KeyMaterial& plan);
Status add_timings(WriteTxn& write, const Hash128& key, const std::vector<Timing>& timings);
Status add_findings(WriteTxn& write, const Hash128& key, const Findings& findings,
                    const std::optional<std::string>& programs);
// Nothing when there is no such plan.
Status note_use(WriteTxn& write, const Hash128& key, int64_t used_ms);
// Everything that belongs to the key except its quarantine; no error when there is nothing.
Status remove_plan(WriteTxn& write, const Hash128& key);
// LIMIT when all pinned plans, with their programs and findings, would take more than `limit` bytes.
Status add_pin(WriteTxn& write, const Hash128& key, uint64_t limit);
Status remove_pin(WriteTxn& write, const Hash128& key);
Status add_quarantine(WriteTxn& write, const Hash128& key, std::string_view reason);
Status write_meta(WriteTxn& write, std::string_view name, std::string_view value);

}  // namespace quern
