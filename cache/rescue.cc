#include "cache/rescue.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "cache/audit.h"
#include "cache/engine.h"
#include "cache/entry.h"
#include "cache/page_walk.h"

namespace quern {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBatchBytes = uint64_t{8} << 20;

// Writes records into a fresh file.
class Carrier {
 public:
  Carrier(std::unique_ptr<Engine> engine, uint64_t base_txn) : engine_(std::move(engine)) {
    batch_.base_txn = base_txn;
  }

  void put(Table table, std::string key, std::string value) {
    if (!status_.ok()) return;
    bytes_ += key.size() + value.size();
    ++records_;
    batch_.writes.push_back({table, std::move(key), std::move(value)});
    if (bytes_ >= kBatchBytes) flush();
  }
  void flush() {
    if (batch_.writes.empty() || !status_.ok()) return;
    status_ = engine_->commit(batch_);
    batch_ = {{}, batch_.base_txn + 1};
    bytes_ = 0;
  }
  const Status& status() const { return status_; }
  uint64_t records() const { return records_; }

 private:
  std::unique_ptr<Engine> engine_;
  Batch batch_;
  Status status_;
  uint64_t bytes_ = 0, records_ = 0;
};

std::optional<Table> table_named(std::string_view name) {
  for (Table table : kAllTables)
    if (name == table_name(table)) return table;
  return {};
}

class Rescue {
 public:
  Rescue(const FileMap& file, uint64_t file_bytes, Carrier& to)
      : file_(file), file_bytes_(file_bytes), to_(to) {}

  void run() {
    const Heads heads = read_heads(file_);
    if (!heads.newest) return;
    // Plans first: the rest is carried over when its plan was.
    const bool whole = carry(*heads.newest, true);
    if (!whole && heads.other) carry(*heads.other, true);
    carry(*heads.newest, false);
    if (!whole && heads.other) carry(*heads.other, false);
    for (const auto& [key, generation] : plans_)
      if (!seen_.contains(place(Table::usage, table_key(key)))) {
        UsageRecord usage;
        usage.key = key;
        usage.generation = generation;
        to_.put(Table::usage, table_key(key), encode_record(usage));
      }
    to_.put(Table::meta, std::string(kCountersKey), encode_record(counters_));
  }
  uint64_t plans() const { return plans_.size(); }

 private:
  static Hash128 place(Table table, std::string_view key) {
    return hash128(std::string(1, static_cast<char>(table)).append(key));
  }

  // Whether all pages of the trees hold.
  bool carry(const Head& head, bool plans) {
    PageWalk walk(file_, head, file_bytes_);
    const PageReader reader(file_, head);
    walk.run(PageWalk::Depth::trees, [&](std::string_view name, const Node& node) {
      const auto table = table_named(name);
      // Entries of lists have nothing to tell by whether they hold: they are made from the requests.
      if (!table || (*table == Table::plans) != plans || *table == Table::request_lists) return;
      if (const auto value = reader.value_of(node); value.ok()) consider(*table, node.key, value->view());
    });
    return walk.problems().empty();
  }

  void consider(Table table, std::string_view key, std::string_view value) {
    Hash128 plan;
    if (!check_alone(table, key, value, &plan).ok()) return;
    if (table == Table::usage) note_usage(value);
    const bool of_plan = table != Table::plans && table != Table::meta && table != Table::quarantine;
    if (of_plan && !plans_.contains(plan)) return;
    if (!seen_.insert(place(table, key)).second) return;
    if (table == Table::meta && key == kCountersKey) return note_counters(value);
    if (table == Table::plans) {
      const uint64_t generation = decode_record<PlanRecord>(value)->generation;
      plans_.emplace(hash_of_table_key(key), generation);
      counters_.generation_floor = std::max(counters_.generation_floor, generation);
    }
    if (table == Table::requests) to_.put(Table::request_lists, table_key(plan) + std::string(key), {});
    to_.put(table, std::string(key), std::string(value));
  }

  void note_usage(std::string_view value) {
    const auto usage = decode_record<UsageRecord>(value);
    counters_.sequence = std::max(counters_.sequence, usage->sequence);
    counters_.generation_floor = std::max(counters_.generation_floor, usage->generation);
  }
  void note_counters(std::string_view value) {
    const auto counters = decode_record<CountersRecord>(value);
    counters_.sequence = std::max(counters_.sequence, counters->sequence);
    counters_.generation_floor = std::max(counters_.generation_floor, counters->generation_floor);
  }

  const FileMap& file_;
  const uint64_t file_bytes_;
  Carrier& to_;
  std::unordered_map<Hash128, uint64_t> plans_;  // carried over, with their generations
  std::unordered_set<Hash128> seen_;
  CountersRecord counters_;
};

Status sync_path(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  const int code = fd < 0 || fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) close(fd);
  // Some file systems cannot sync a directory and say so with EINVAL.
  return code == 0 || code == EINVAL ? Status() : storage_error(code, "cannot sync " + path);
}

void remove_set_aside(const std::string& path, const std::string& except) {
  std::error_code error;
  const std::string head = path + ".damaged-";
  std::vector<fs::path> old;
  for (const auto& file : fs::directory_iterator(fs::path(path).parent_path(), error))
    if (file.path().string().starts_with(head) && file.path() != except) old.push_back(file.path());
  for (const fs::path& file : old) fs::remove(file, error);
}

// The two change names at one moment; where the file system cannot do that, one after the other.
Status take_place(const std::string& fresh, const std::string& path, const std::string& aside) {
  const bool exchanged = renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0;
  if (rename(exchanged ? fresh.c_str() : path.c_str(), aside.c_str()) != 0)
    return storage_error(errno, "cannot set aside " + path);
  if (!exchanged && rename(fresh.c_str(), path.c_str()) != 0)
    return storage_error(errno, "cannot replace " + path);
  return sync_path(fs::path(path).parent_path().string(), O_RDONLY | O_DIRECTORY);
}

}  // namespace

std::string RescueReport::text() const {
  return why + "; the cache was rebuilt with " + std::to_string(plans) + " plans (" +
         std::to_string(records) + " records) that read back" +
         (all ? "" : ", as many as the disk has room for") + "; the damaged file is now " + aside +
         " and may be deleted";
}

Result<RescueReport> rescue_file(int damaged, const RescueOptions& options) {
  struct stat info;
  if (fstat(damaged, &info) != 0) return storage_error(errno, "cannot look at " + options.path);
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  auto file = FileMap::map(damaged, std::max(file_bytes, kHeadsBytes));
  if (!file) return file.status();
  const std::string fresh = options.path + ".new";
  remove_set_aside(options.path, "");
  unlink(fresh.c_str());
  auto engine = Engine::start({options.engine, fresh, options.map_bytes, false});
  if (!engine) return engine.status();
  // Its tables are its first transaction.
  Carrier carrier(std::move(*engine), 1);
  Rescue rescue(**file, file_bytes, carrier);
  rescue.run();
  RescueReport report;
  report.why = options.why;
  report.aside = options.path + ".damaged-" + std::to_string(options.now_ms);
  report.plans = rescue.plans();
  report.records = carrier.records();
  MetaRecord note;
  note.name = kMetaRescue;
  const std::string text = report.text();
  note.value = text;
  carrier.put(Table::meta, kMetaRescue, encode_record(note));
  carrier.flush();
  report.all = carrier.status().code() != ErrorCode::STORAGE_FULL;
  if (report.all && !carrier.status().ok()) return carrier.status();
  if (Status status = sync_path(fresh, O_RDONLY); !status.ok()) return status;
  if (Status status = take_place(fresh, options.path, report.aside); !status.ok()) return status;
  return report;
}

}  // namespace quern
