// LMDB behind types that clean up after themselves: one file, its tables, transactions, and its errors as
// Status.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "core/base/hash.h"
#include "core/base/status.h"

struct MDB_env;
struct MDB_txn;

namespace quern {

// `code` is an errno or an LMDB code; `doing` says what failed and on which file.
Status storage_error(int code, std::string_view doing);

// The tables of the file (FORMAT.md). The order is not stored; the names are.
enum class Table {
  plans,
  timings,
  requests,
  request_lists,
  usage,
  quarantine,
  meta,
  findings,
  programs,
  tuning
};
inline constexpr Table kAllTables[] = {
    Table::plans,      Table::timings, Table::requests, Table::request_lists, Table::usage,
    Table::quarantine, Table::meta,    Table::findings, Table::programs,      Table::tuning};
inline constexpr int kTableCount = 10;
const char* table_name(Table table);

// 16 bytes whose order is that of to_hex().
std::string table_key(const Hash128& hash);
// The first 16 bytes of `key`, which must be there.
Hash128 hash_of_table_key(std::string_view key);

class Database {
 public:
  // The map is halved as long as the address space refuses it. Read-only: the file must exist, and nobody may
  // write to it; tables that it lacks, because an earlier version made it, are empty. CORRUPT when the file
  // is no database or its tables cannot be found.
  static Result<std::unique_ptr<Database>> open(const std::string& path, uint64_t map_bytes, bool read_only);
  ~Database();
  Database(const Database&) = delete;

  // After a failed commit: opens the same file again if LMDB refuses all further work (MDB_PANIC, which
  // follows a failed write of its head page). Waits for open transactions; the caller must hold none.
  Status mend();

  const std::string& path() const { return path_; }
  uint64_t map_bytes() const;
  uint64_t file_bytes() const;

 private:
  friend class Txn;
  Database(std::string path, uint64_t map_bytes, bool read_only)
      : path_(std::move(path)), wanted_map_bytes_(map_bytes), read_only_(read_only) {}
  Status open_env();
  Status try_map(uint64_t map_bytes, int* code);
  Status open_tables();
  Status reach_last_page();
  void close_env();

  const std::string path_;
  const uint64_t wanted_map_bytes_;
  const bool read_only_;
  // Held shared by every transaction and alone by mend().
  mutable std::shared_mutex env_mutex_;
  std::atomic<bool> panicked_ = false;
  MDB_env* env_ = nullptr;
  static constexpr unsigned kNoTable = UINT_MAX;  // read-only: a table that is not in the file is empty
  unsigned tables_[kTableCount] = {};
};

// One transaction, aborted unless committed. Use it on the thread that began it. Bytes it returns live until
// it ends or, in one that writes, until its next write.
class Txn {
 public:
  enum class Mode { read, write };
  static Result<Txn> begin(Database& database, Mode mode);
  Txn(Txn&& other);
  ~Txn();

  // NOT_FOUND without a message when there is none: misses are common.
  Result<std::string_view> get(Table table, std::string_view key);
  Status put(Table table, std::string_view key, std::string_view value);
  // No error when there is none.
  Status remove(Table table, std::string_view key);
  // In key order from the first key that is at least `from`, until `visit` returns false. `visit` must not
  // write.
  Status scan(Table table, std::string_view from,
              const std::function<bool(std::string_view key, std::string_view value)>& visit);

  Result<uint64_t> count(Table table);
  // Pages that the tables occupy, without free ones.
  Result<uint64_t> live_bytes();

  // Durable when OK. The transaction is over either way. A `fault` other than 0 is an error to fail with, for
  // tests.
  Status commit(int fault = 0);
  // Something in LMDB failed: the transaction can only be dropped.
  bool broken() const { return broken_; }

 private:
  Txn(Database& database, MDB_txn* txn, std::shared_lock<std::shared_mutex> lock)
      : database_(&database), txn_(txn), lock_(std::move(lock)) {}
  Status fail(int code, std::string_view doing);
  bool has(Table table) const { return handle(table) != Database::kNoTable; }
  unsigned handle(Table table) const { return database_->tables_[static_cast<int>(table)]; }

  Database* database_;
  MDB_txn* txn_;
  std::shared_lock<std::shared_mutex> lock_;
  bool broken_ = false;
};

// Like Txn::scan from `next` on, in many short transactions, so that a long walk does not keep freed
// pages from being used again. What is written meanwhile may or may not be seen.
Status walk(Database& database, Table table,
            const std::function<bool(Txn& txn, std::string_view key, std::string_view value)>& visit,
            std::string next = {});

}  // namespace quern
