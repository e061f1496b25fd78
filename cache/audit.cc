#include "cache/audit.h"

#include <algorithm>
#include <cstdio>

namespace quern {

namespace {

constexpr size_t kHashBytes = 16;
constexpr uint64_t kProgressEvery = 256;

Status corrupt(const char* what) { return Status(ErrorCode::CORRUPT, what); }

// How many hashes a key has.
size_t hashes_of(Table table) { return table == Table::timings ? 3 : table == Table::request_lists ? 2 : 1; }

// That the record decodes and says itself that it lies where it does.
template <class T, class KeyOf>
Status check_own(std::string_view key, std::string_view value, Hash128* plan, KeyOf key_of) {
  const auto record = decode_record<T>(value);
  if (!record) return record.status();
  if (key_of(*record) != key) return corrupt("the record lies under another key than its own");
  if constexpr (requires { record->key; }) *plan = record->key;
  return {};
}

// Of records that lie under the key of their plan.
template <class T>
Status check_by_plan(std::string_view key, std::string_view value, Hash128* plan) {
  return check_own<T>(key, value, plan, [](const T& record) { return table_key(record.key); });
}

Status check_meta(std::string_view key, std::string_view value) {
  if (key == kCountersKey) return decode_record<CountersRecord>(value).status();
  return check_own<MetaRecord>(key, value, nullptr, [](const MetaRecord& record) { return record.name; });
}

bool needs_plan(Table table) {
  return table != Table::plans && table != Table::quarantine && table != Table::meta;
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

Status check_alone(Table table, std::string_view key, std::string_view value, Hash128* plan) {
  if (table == Table::meta) return check_meta(key, value);
  if (key.size() != hashes_of(table) * kHashBytes)
    return corrupt("the record lies under a key of a wrong length");
  *plan = hash_of_table_key(key);
  const auto by_material = [](const auto& record) { return table_key(hash128(record.material)); };
  switch (table) {
    case Table::plans:
      return check_own<PlanRecord>(key, value, plan, by_material);
    case Table::timings:
      return check_own<TimingRecord>(key, value, plan, [](const TimingRecord& record) {
        return timing_key(record.key, record.device, record.program);
      });
    case Table::requests:
      return check_own<RequestRecord>(key, value, plan, by_material);
    case Table::usage:
      return check_by_plan<UsageRecord>(key, value, plan);
    case Table::quarantine:
      return check_by_plan<QuarantineRecord>(key, value, plan);
    case Table::findings:
      return check_by_plan<FindingsRecord>(key, value, plan);
    case Table::programs:
      return check_by_plan<ProgramsRecord>(key, value, plan);
    case Table::tuning:
      return check_by_plan<TuningRecord>(key, value, plan);
    case Table::request_lists:
    case Table::meta:
      break;
  }
  return {};
}

Status check_record(Txn& txn, Table table, std::string_view key, std::string_view value) {
  Hash128 plan;
  if (Status status = check_alone(table, key, value, &plan); !status.ok()) return status;
  if (table == Table::request_lists) return check_listed_request(txn, key, value);
  if (!needs_plan(table)) return {};
  const auto found = txn.get(Table::plans, table_key(plan));
  return found.ok() ? Status() : corrupt("the record belongs to a plan that is not there");
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
  {
    const auto txn = Txn::begin(database, Txn::Mode::read);
    if (!txn) return txn.status();
    for (Table table : kAllTables) total += txn->count(table);
  }
  for (std::string& problem : database.problems()) report.damage.push_back({"pages", "", std::move(problem)});
  if (!report.damage.empty()) database.suspect(corrupt("a verification has found damaged pages"));
  for (Table table : kAllTables) {
    const Status status = walk(database, table, [&](Txn& txn, std::string_view key, std::string_view value) {
      ++report.records;
      report.bytes += key.size() + value.size();
      if (const Status found = check_record(txn, table, key, value); !found.ok()) {
        report.damage.push_back({table_name(table), printed_key(table, key), found.message()});
        on_damage(table, std::string(key));
      }
      if (progress && report.records % kProgressEvery == 0)
        progress(report.records, std::max(report.records, total));
      return true;
    });
    // The rest of the table cannot be reached from here; what of it holds is carried over when it is rebuilt.
    if (status.code() == ErrorCode::CORRUPT) {
      report.damage.push_back({table_name(table), "", status.message()});
      database.suspect(status);
    } else if (!status.ok()) {
      return status.with_context(std::string("table ") + table_name(table));
    }
  }
  if (progress) progress(report.records, report.records);
  return report;
}

}  // namespace quern
