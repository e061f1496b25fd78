#include "cache/writer.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <new>
#include <span>

namespace quern {

namespace {

// A group ends at the first of these. They bound the memory of a transaction and the wait of its first write.
constexpr size_t kMaxGroupWrites = 512;
constexpr uint64_t kMaxGroupBytes = uint64_t{64} << 20;
constexpr int kMaxRecoveries = 2;

}  // namespace

Writer::Writer(Database& database, Options options)
    : database_(database), options_(std::move(options)), thread_([this] { run(); }) {}

Writer::~Writer() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Writer::submit(Apply apply, Done done, uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    // One write always fits, however large.
    if (bytes == 0 || queued_bytes_ == 0 || queued_bytes_ + bytes <= options_.max_queued_bytes) {
      queue_.push_back(Write{std::move(apply), std::move(done), bytes, {}});
      queued_bytes_ += bytes;
      wake_.notify_one();
      return;
    }
  }
  if (done)
    done(
        Status(ErrorCode::BUSY, "writes to the cache come faster than the disk takes them; try again later"));
}

Status Writer::flush() {
  std::promise<Status> answered;
  submit([](WriteTxn&) { return Status(); }, [&](Status status) { answered.set_value(std::move(status)); },
         0);
  return answered.get_future().get();
}

uint64_t Writer::queued() const {
  std::lock_guard lock(mutex_);
  return queue_.size();
}

void Writer::run() {
  for (;;) {
    std::vector<Write> group;
    try {
      group = next_group();
    } catch (const std::bad_alloc&) {  // nothing has left the queue
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    const bool idle = group.empty();
    if (!idle || options_.wants_commit()) commit_group(group);
    for (Write& write : group)
      if (write.done) write.done(std::move(write.status));
    std::lock_guard lock(mutex_);
    if (stopping_ && queue_.empty() && idle) return;
  }
}

// Waits for work, for idle_ms or for the end. The last group before the end is empty.
std::vector<Writer::Write> Writer::next_group() {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, std::chrono::milliseconds(options_.idle_ms),
                 [&] { return stopping_ || !queue_.empty(); });
  std::vector<Write> group;
  group.reserve(std::min(queue_.size(), kMaxGroupWrites));
  uint64_t bytes = 0;
  while (!queue_.empty() && group.size() < kMaxGroupWrites &&
         (group.empty() || bytes + queue_.front().bytes <= kMaxGroupBytes)) {
    bytes += queue_.front().bytes;
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  queued_bytes_ -= bytes;
  return group;
}

void Writer::commit_group(std::vector<Write>& group) {
  Status status = commit_or_recover(group);
  if (status.ok()) return;
  // One write that does not fit must not take the others with it: each gets a transaction of its own.
  const bool retry = group.size() > 1;
  for (Write& write : group)
    if (const Status own = retry ? commit_or_recover({&write, 1}) : status; !own.ok()) write.status = own;
  if (group.empty()) options_.report("the cache was not looked after: " + status.message());
}

// What is found wrong after that, a third time is no better.
Status Writer::commit_or_recover(std::span<Write> group) try {
  uint64_t bytes = 0;
  for (const Write& write : group) bytes += write.bytes;
  Status status = try_commit(group);
  for (int tries = 0; !status.ok() && tries < kMaxRecoveries; ++tries) {
    if (Status recovered = options_.recover(status, bytes); !recovered.ok()) return recovered;
    status = try_commit(group);
  }
  return status;
} catch (const std::bad_alloc&) {
  ++failed_commits_;
  return Status(ErrorCode::OUT_OF_MEMORY, "out of memory");
}

// All or nothing, except that a write whose own error left the transaction whole keeps that error in its
// status.
Status Writer::try_commit(std::span<Write> group) {
  const auto attempt = [&]() -> Status {
    if (Status status = database_.make_sound(); !status.ok()) return status;
    auto txn = Txn::begin(database_, Txn::Mode::write);
    if (!txn) return txn.status();
    bool rebuilt = false;
    const auto counters = read_counters(*txn, &rebuilt);
    if (!counters) return counters.status();
    if (rebuilt) options_.report("the counters of the cache were damaged and have been rebuilt");
    WriteTxn write{*txn, *counters, options_.now_ms()};
    Status status = options_.before(write);
    for (Write& one : group) {
      if (!status.ok()) return status;
      one.status = one.apply(write);
      if (txn->broken()) status = one.status;
    }
    if (status.ok()) status = options_.after(write);
    if (status.ok() && (rebuilt || write.counters != *counters))
      status = write_counters(*txn, write.counters);
    if (!status.ok()) return status;
    return txn->commit(options_.commit_fault ? options_.commit_fault() : 0);
  };
  Status status = attempt();
  ++(status.ok() ? commits_ : failed_commits_);
  return status;
}

}  // namespace quern
