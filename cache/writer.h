// Group commit: a thread that takes what was queued, applies it in one transaction, and answers when it is on
// disk.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "cache/tables.h"

namespace quern {

class Writer {
 public:
  // `apply` may run twice: in a group, and alone if the group failed. An error from it that leaves the
  // transaction whole concerns this write only; it must then have changed nothing.
  using Apply = std::function<Status(WriteTxn&)>;
  using Done = std::function<void(Status)>;

  struct Options {
    uint64_t max_queued_bytes;
    int64_t idle_ms;  // an empty group is committed after so long without another, if `wants_commit`
    std::function<int64_t()> now_ms;
    std::function<int()> commit_fault;               // may be empty
    std::function<bool()> wants_commit;              // is there something to do though nothing is queued?
    std::function<Status(WriteTxn&)> before, after;  // run in every group's transaction, around the writes
    // After a failure of a group with so many bytes: OK when it is to be tried again.
    std::function<Status(const Status& failure, uint64_t bytes)> recover;
    std::function<void(const std::string&)> report;
  };

  Writer(Database& database, Options options);
  // Commits what is queued, then ends the thread.
  ~Writer();

  // `bytes` counts against max_queued_bytes; BUSY is told through `done`, at once.
  void submit(Apply apply, Done done, uint64_t bytes);
  // Waits until all that was submitted before is answered; the status of the commit that this wait travelled
  // with.
  Status flush();

  uint64_t commits() const { return commits_; }
  uint64_t failed_commits() const { return failed_commits_; }
  uint64_t queued() const;

 private:
  struct Write {
    Apply apply;
    Done done;
    uint64_t bytes;
    Status status;
  };

  void run();
  std::vector<Write> next_group();
  void commit_group(std::vector<Write>& group);
  Status commit_or_recover(std::span<Write> group);
  Status try_commit(std::span<Write> group);

  Database& database_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Write> queue_;
  uint64_t queued_bytes_ = 0;
  bool stopping_ = false;
  std::atomic<uint64_t> commits_ = 0, failed_commits_ = 0;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace quern
