#include "cache/audit.h"

#include <cstdio>

namespace quern {

namespace {

constexpr size_t kHashBytes = 16;
constexpr uint64_t kProgressEvery = 256;

Status corrupt(const char* what) { return Status(ErrorCode::CORRUPT, what); }

// How many hashes a key has.
size_t hashes_of(Table table) { return table == Table::timings ? 3 : table == Table::request_lists ? 2 : 1; }

template <class T>
Status status_of(const Result<T>& result) {
  return result.ok() ? Status() : result.status();
}

Status needs_plan(Txn& txn, const Hash128& key) {
  const auto plan = txn.get(Table::plans, table_key(key));
  return plan.ok() ? Status() : corrupt("the record belongs to a plan that is not there");
}

Status check_timing(Txn& txn, std::string_view key, std::string_view value) {
  const auto timing = decode_record<TimingRecord>(value);
  if (!timing) return timing.status();
  if (timing_key(timing->key, timing->device, timing->program) != key)
    return corrupt("the timing record lies under another key than its own");
  return needs_plan(txn, timing->key);
}

Status check_listed_request(Txn& txn, std::string_view key, std::string_view value) {
  if (!value.empty()) return corrupt("an entry in a list of requests has a value");
  const auto request = read_request(txn, hash_of_table_key(key.substr(kHashBytes)));
  if (!request.ok()) return corrupt("the list of requests names one that is not there or is damaged");
  return request->key == hash_of_table_key(key)
             ? Status()
             : corrupt("the list of requests names another plan's request");
}

// The lists are by plan, and which plan it was cannot be read any more: look through all.
Status unlist_request(Txn& txn, const Hash128& request) {
  std::vector<std::string> entries;
  const std::string second = table_key(request);
  Status status = txn.scan(Table::request_lists, {}, [&](std::string_view key, std::string_view) {
    if (key.ends_with(second)) entries.emplace_back(key);
    return true;
  });
  for (const std::string& entry : entries)
    if (status.ok()) status = txn.remove(Table::request_lists, entry);
  return status;
}

}  // namespace

Status check_record(Txn& txn, Table table, std::string_view key, std::string_view value) {
  if (table == Table::meta)
    return key == kCountersKey ? status_of(decode_record<CountersRecord>(value))
                               : status_of(read_meta(txn, key));
  if (key.size() != hashes_of(table) * kHashBytes)
    return corrupt("the record lies under a key of a wrong length");
  const Hash128 hash = hash_of_table_key(key);
  switch (table) {
    case Table::plans:
      return status_of(read_plan(txn, hash));
    case Table::timings:
      return check_timing(txn, key, value);
    case Table::requests: {
      const auto request = read_request(txn, hash);
      return request.ok() ? needs_plan(txn, request->key) : request.status();
    }
    case Table::request_lists:
      return check_listed_request(txn, key, value);
    case Table::usage: {
      const auto usage = read_usage(txn, hash);
      return usage.ok() ? needs_plan(txn, hash) : usage.status();
    }
    case Table::quarantine:
      return status_of(read_quarantine(txn, hash));
    case Table::findings: {
      const auto findings = read_findings(txn, hash);
      return findings.ok() ? needs_plan(txn, hash) : findings.status();
    }
    case Table::programs: {
      const auto programs = read_programs(txn, hash);
      return programs.ok() ? needs_plan(txn, hash) : programs.status();
    }
    case Table::tuning: {
      const auto tuning = read_tuning(txn, hash);
      return tuning.ok() ? needs_plan(txn, hash) : tuning.status();
    }
    case Table::meta:
      break;
  }
  return {};
}

Status remove_damaged(WriteTxn& write, Table table, std::string_view key) {
  const auto value = write.txn.get(table, key);
  if (value.status().code() == ErrorCode::NOT_FOUND) return {};
  if (!value.ok()) return value.status();
  if (check_record(write.txn, table, key, *value).ok()) return {};
  const bool whole_key = key.size() == kHashBytes;
  if (table == Table::plans && whole_key) return remove_plan(write, hash_of_table_key(key));
  Status status = write.txn.remove(table, key);
  if (status.ok() && table == Table::requests && whole_key)
    status = unlist_request(write.txn, hash_of_table_key(key));
  if (status.ok() && table == Table::usage && whole_key)
    status = note_use(write, hash_of_table_key(key), write.now_ms);
  return status;
}

std::string printed_key(Table table, std::string_view key) {
  if (table == Table::meta) return std::string(key == kCountersKey ? "(counters)" : key);
  std::string text;
  for (unsigned char byte : key) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

Result<VerifyReport> audit(Database& database,
                           const std::function<void(uint64_t done, uint64_t total)>& progress,
                           const std::function<void(Table table, std::string key)>& on_damage) {
  VerifyReport report;
  uint64_t total = 0;
  for (Table table : kAllTables) {
    auto txn = Txn::begin(database, Txn::Mode::read);
    if (!txn) return txn.status();
    const auto count = txn->count(table);
    if (!count) return count.status();
    total += *count;
  }
  for (Table table : kAllTables) {
    Status status = walk(database, table, [&](Txn& txn, std::string_view key, std::string_view value) {
      ++report.records;
      report.bytes += key.size() + value.size();
      if (const Status found = check_record(txn, table, key, value); !found.ok()) {
        report.damage.push_back({table_name(table), printed_key(table, key), found.message()});
        on_damage(table, std::string(key));
      }
      if (progress && report.records % kProgressEvery == 0) progress(report.records, total);
      return true;
    });
    if (!status.ok()) return status.with_context(std::string("table ") + table_name(table));
  }
  if (progress) progress(report.records, report.records);
  return report;
}

}  // namespace quern
