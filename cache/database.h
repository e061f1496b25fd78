// One file of tables with transactions. It is read in this process by pages.h, which no damage can hurt, and
// written by LMDB in another one (engine.h). A damaged file is set aside and rebuilt from what reads back.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/engine.h"
#include "cache/page_walk.h"
#include "cache/table.h"
#include "core/base/hash.h"
#include "core/base/status.h"

namespace quern {

// What one committed transaction has left, for as long as somebody reads it.
struct Snapshot {
  std::shared_ptr<const FileMap> file;
  Head head;
  std::optional<Tree> tables[kTableCount];  // none: the file is of an earlier version

  PageReader reader() const { return {*file, head}; }
};

struct DatabaseOptions {
  std::string path;
  uint64_t map_bytes = 0;
  bool read_only = false;  // the file must exist, and nobody may write to it
  std::string engine;      // as in Engine::Options
  std::function<int64_t()> now_ms;
  std::function<void(const std::string&)> report;  // may be empty
  std::function<Status()> claim =
      {};  // makes the directory and takes its lock, when both are gone; may be empty
};

class Database {
 public:
  // A file that is no database, or whose tables cannot be found, is rebuilt, or CORRUPT if it is to be read
  // only.
  static Result<std::unique_ptr<Database>> open(DatabaseOptions options);
  ~Database();
  Database(const Database&) = delete;

  // To be called on the thread that writes whenever readers find something else in the file than before: what
  // this batch has changed, or, if it is null, anything. Before the first transaction.
  void on_change(std::function<void(const Batch*)> changed) { changed_ = std::move(changed); }

  // The rest is for the one thread that writes.

  // Before the first transaction and after a suspicion: whether the pages hold together; a file whose pages
  // do not is rebuilt.
  Status make_sound();
  // After a failed commit: OK when another try may succeed. A file that is gone is started anew, a damaged
  // one is rebuilt, a process that is gone is replaced.
  Status recover(const Status& failure);
  // Whether the path still leads to the file. What is written to another one is lost.
  bool is_in_place() const;

  // For any thread.

  // Something of the file did not hold: make_sound() will look at all of it.
  void suspect(const Status& why);
  bool is_suspected() const { return suspected_; }
  // Of the pages of trees. No commit ends while it looks, but for two.
  std::vector<std::string> problems() const { return look_at_pages(PageWalk::Depth::trees).problems(); }
  const std::string& path() const { return options_.path; }
  uint64_t map_bytes() const { return map_bytes_; }
  uint64_t file_bytes() const;
  uint64_t rescues() const { return rescues_; }
  pid_t engine_process() const { return engine_process_; }

 private:
  friend class Txn;
  explicit Database(DatabaseOptions options) : options_(std::move(options)) {}
  void report(const std::string& message) const;
  PageWalk look_at_pages(PageWalk::Depth depth) const;
  Status open_file(bool create);
  Status start_engine();
  void stop_engine();
  Status load(const Batch* committed = nullptr);
  Status start_anew();
  Status rescue(const Status& why);
  Status commit(const Snapshot& base, Batch batch);
  Status check_written(const Batch& batch) const;
  void wait_for_readers(uint64_t base_txn);
  std::shared_ptr<const Snapshot> current() const;

  const DatabaseOptions options_;
  std::function<void(const Batch*)> changed_;
  std::atomic<uint64_t> map_bytes_ = 0, rescues_ = 0;
  std::atomic<pid_t> engine_process_ = 0;
  std::atomic<bool> suspected_ = true;  // until make_sound() has looked at it once
  bool thoroughly_ = false;             // beyond the trees
  bool stale_ = false;                  // a commit may have come after the head that was read last
  std::unique_ptr<Engine> engine_;
  mutable std::mutex mutex_;  // of the next ones
  int fd_ = -1;
  std::shared_ptr<const FileMap> file_;
  std::shared_ptr<const Snapshot> current_;
  std::deque<std::weak_ptr<const Snapshot>> older_;
};

// The snapshot of the newest head that can be read; CORRUPT when there is none.
Result<std::shared_ptr<const Snapshot>> read_snapshot(std::shared_ptr<const FileMap> file);

// One transaction. Use it on the thread that began it. Bytes that it returns live as long as it does.
class Txn {
 public:
  enum class Mode { read, write };
  // One at a time may write.
  static Result<Txn> begin(Database& database, Mode mode);
  Txn(Txn&&) = default;

  // NOT_FOUND without a message when there is none: misses are common.
  Result<std::string_view> get(Table table, std::string_view key);
  Status put(Table table, std::string_view key, std::string_view value);
  // No error when there is none.
  Status remove(Table table, std::string_view key);
  // In key order from the first key that is at least `from`, until `visit` returns false. `visit` must not
  // write.
  Status scan(Table table, std::string_view from,
              const std::function<bool(std::string_view key, std::string_view value)>& visit);

  // In the file, without what this transaction has changed.
  uint64_t count(Table table) const;
  // Pages that the tables occupy, without free ones; of what this transaction has changed an estimate.
  uint64_t live_bytes() const;

  // Durable, in place and read back when OK. The transaction is over either way. A `fault` other than 0 is an
  // error to fail with, for tests.
  Status commit(int fault = 0);
  // The file is damaged: the transaction can only be dropped.
  bool broken() const { return broken_; }

 private:
  using Changes = std::map<std::string, std::optional<std::string>, std::less<>>;
  Txn(Database& database, std::shared_ptr<const Snapshot> snapshot, Mode mode)
      : database_(&database), snapshot_(std::move(snapshot)), mode_(mode) {}
  Status fail(const Status& why);
  const Tree* tree(Table table) const;
  Changes& changes(Table table) { return changes_[static_cast<int>(table)]; }
  Status change(Table table, std::string_view key, std::optional<std::string> value);
  int64_t bytes_of(uint64_t key_bytes, uint64_t value_bytes) const;

  Database* database_;
  std::shared_ptr<const Snapshot> snapshot_;
  Mode mode_;
  bool broken_ = false;
  TreePage page_;
  std::deque<Bytes> values_;  // what get() has returned views of
  Changes changes_[kTableCount];
  int64_t changed_bytes_ = 0;
};

// Like Txn::scan from `next` on, in many short transactions, so that a long walk does not keep freed
// pages from being used again. What is written meanwhile may or may not be seen.
Status walk(Database& database, Table table,
            const std::function<bool(Txn& txn, std::string_view key, std::string_view value)>& visit,
            std::string next = {});

}  // namespace quern
