// The store: plans, their timings and the front index in one LMDB file, private to the daemon that holds its
// lock.
//
// 1. Every function may be called from any thread.
// 2. Reads answer from the last durable commit, at once, without system calls once the pages are in memory.
// 3. Writes are queued and return at once; a writer thread commits them in groups. `done` is called exactly
// once, on the
//    writer thread after the group is on disk (OK means durable) or, when a write is refused at once (BUSY,
//    PERMISSION), before the call returns. It must not block and must not call flush(). An empty `done` is
//    allowed.
// 4. A damaged record is a miss (NOT_FOUND); it is reported through StoreOptions::report and removed. A
// damaged
//    file is set aside, and the store goes on with what reads back from it.
// 5. A failed write (STORAGE_FULL, IO, ...) changes nothing: what stood before still stands, and reads go on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/key.h"
#include "core/base/hash.h"
#include "core/base/plan.h"
#include "core/base/status.h"

namespace quern {

// The file in the cache directory. The number is kRecordVersion: versions that cannot read each other use
// different files.
inline constexpr const char* kStoreFile = "store-1.mdb";
inline constexpr const char* kLockFile = "store.lock";

struct StoreOptions {
  std::string directory;                   // made (0700) when missing
  uint64_t map_bytes = uint64_t{1} << 40;  // virtual, sparse; halved as long as the address space refuses it
  uint64_t max_bytes = uint64_t{5} << 30;  // above this the plans used longest ago are evicted
  uint64_t max_queued_bytes = uint64_t{256} << 20;  // writes beyond this are refused with BUSY
  size_t recent_bytes = 16 << 20;     // plans that find_request() keeps in memory, read and checked
  int64_t touch_interval_ms = 60000;  // how long uses may wait for a commit to travel with
  std::string engine;                 // path of quern-store; empty: where it is installed

  // The outside world; empty members mean the real one.
  std::function<int64_t()> now_ms;  // wall clock, since 1970; may jump
  std::function<void(const std::string& message)>
      report;  // damage and the like, one sentence; any thread; default stderr
  std::function<int()>
      commit_fault;  // tests: asked before each commit, which fails with the errno or LMDB code it returns
};

struct StoredPlan {
  Hash128 key;
  std::string material;
  uint64_t generation = 0;  // starts at 1, rises each time the key's plan is replaced, never falls
  Tier tier = Tier::baseline;
  int64_t created_ms = 0, used_ms = 0;  // the last use only from peek() and list()
  std::string plan;                     // encoded
};

// Of one program of a plan's graph.
struct Timing {
  std::string device;  // all that a timing depends on, or a cost model's name
  Hash128 program;     // Program::name()
  double cold_ns = 0;  // this is what ranks; 0: refused
  double hot_ns = 0;
  uint32_t samples = 0;
  double error = 0;
  std::string refusal;
  int64_t measured_ms = 0;  // filled in by the store
};

// How far the making of better plans has come for a key.
struct Tuning {
  uint64_t generation = 0;  // of the plan that `program` is; 0: not known
  Hash128 program;
  uint32_t timeouts = 0;  // searches in a row that ran out of time
};

// What the background search for a better plan came to.
struct Findings {
  uint64_t generation = 0;  // of the plan that the texts below belong to; put() fills it in; 0: it made none
  std::string reason;       // why it made none; empty if it did
  std::string report;       // what became of its candidates, for people
  std::string mugraph, schedule, cuda;  // what the plan was made from
  std::string state;                    // of an interrupted search, to continue from
  uint32_t timeouts = 0;                // searches in a row that ran out of time, this one included
};

struct PlanPut {
  KeyMaterial material;
  Tier tier = Tier::baseline;
  std::string plan;                     // encoded
  std::string device;                   // on which it is compared with a plan of its tier
  std::vector<Timing> timings;          // of its program and others; kept whether or not the plan is better
  std::optional<Hash128> program;       // the one that it is
  std::optional<std::string> programs;  // encode_programs(): replaces those that are stored
  std::optional<KeyMaterial>
      request;  // enters the front index with the plan, whether or not the plan is better
  std::optional<Findings>
      findings;        // of the search that made the plan; what is known of a plan that stands stays
  bool force = false;  // replace whatever stands
};

// Losing against a plan that is as good is success: `published` is false and the rest is what stands.
struct PutOutcome {
  bool published = false;
  Hash128 key;
  uint64_t generation = 0;
  Tier tier = Tier::baseline;
};

struct Quarantine {
  uint32_t count = 0;
  int64_t last_ms = 0;
  std::string reason;
};

struct StoreStats {
  uint64_t plans = 0, requests = 0, timings = 0, quarantined = 0;  // records on disk
  uint64_t live_bytes = 0;                                         // pages in use: what max_bytes limits
  uint64_t file_bytes = 0, map_bytes = 0, max_bytes = 0;
  // Since the store was opened.
  uint64_t hits = 0, misses = 0, published = 0, outdone = 0, commits = 0, failed_commits = 0, evicted = 0,
           damaged = 0, rescues = 0;
  std::string last_rescue;     // what was found and done, in whichever daemon's time; empty: nothing so far
  uint64_t queued_writes = 0;  // now
  bool read_only = false;
};

struct VerifyReport {
  struct Damage {
    std::string table;  // "plans", "requests", ...
    std::string key;    // hexadecimal, or the name of a meta record
    std::string what;
  };
  uint64_t records = 0, bytes = 0;
  std::vector<Damage> damage;
};

class Store {
 public:
  using Done = std::function<void(Status)>;
  using PutDone = std::function<void(Result<PutOutcome>)>;

  // BUSY when another process (or another Store) has it open; the message names the process. A directory that
  // cannot be written is opened read-only: reads work, writes are refused with PERMISSION. A file that is no
  // store any more is set aside under another name, reported, and rebuilt from what reads back.
  static Result<std::unique_ptr<Store>> open(const StoreOptions& options);
  // Commits what is queued, then closes.
  ~Store();

  bool read_only() const;

  // NOT_FOUND on a miss. A hit counts as a use.
  Result<StoredPlan> get(const KeyMaterial& material);
  // Through the front index: the plan that this exact request got before. What was found not long ago, and
  // still stands, is not read again.
  Result<std::shared_ptr<const StoredPlan>> find_request(const KeyMaterial& request);
  // The same, of what is in memory only; null, and no miss, when that does not have it.
  std::shared_ptr<const StoredPlan> find_recent(const KeyMaterial& request);
  // The bytes of one of the requests that got the plan; NOT_FOUND when none is known.
  Result<std::string> request_of(const Hash128& key);
  // By key alone, for tools that print; no use, no hit, no miss.
  Result<StoredPlan> peek(const Hash128& key);
  // Notes a use that was served from elsewhere (the daemon's memory).
  void touch(const Hash128& key);

  // In one transaction: publishes the plan if there is none or it is better (a higher tier, an equal tier
  // whose program is faster on the same device, or `force`), with its generation, timings and request. The
  // old plan stands until then. LIMIT for a plan larger than max_bytes; INTERNAL for two materials with one
  // hash.
  void put(PlanPut put, PutDone done);
  Result<PutOutcome> put_and_wait(PlanPut put);
  // Another request that means a stored plan; NOT_FOUND when that plan is gone.
  void put_request(KeyMaterial request, KeyMaterial plan, Done done = {});
  // NOT_FOUND when the plan is gone.
  void put_timings(const Hash128& key, std::vector<Timing> timings, Done done = {});
  Result<std::vector<Timing>> timings(const Hash128& key);
  // Encoded; NOT_FOUND when there are none.
  Result<std::string> programs(const Hash128& key);
  // All zero where nothing is known.
  Tuning tuning(const Hash128& key);
  // Of a search that made no plan; what is known of the plan that stands stays. NOT_FOUND when none stands.
  void put_findings(const Hash128& key, Findings findings, std::optional<std::string> programs = {},
                    Done done = {});
  // NOT_FOUND when the plan's search has not ended yet.
  Result<Findings> findings(const Hash128& key);
  // The plan with its programs, timings, requests and findings; NOT_FOUND when there is none.
  void remove(const Hash128& key, Done done = {});

  // A pinned plan is not evicted; a better one takes its place and its pin, and remove() takes both.
  // NOT_FOUND when there is no such plan, LIMIT when pinned plans would take more than half of max_bytes.
  void pin(const Hash128& key, bool pinned, Done done = {});
  bool is_pinned(const Hash128& key);

  // Counts one more death of a worker on this key.
  void quarantine(const Hash128& key, std::string reason, Done done = {});
  void release(const Hash128& key, Done done = {});
  Result<Quarantine> find_quarantine(const Hash128& key);

  void set_meta(std::string name, std::string value, Done done = {});
  Result<std::string> meta(std::string_view name);

  // All plans in key order, until `visit` returns false. Plans published meanwhile may or may not be seen.
  // With `after`, those with larger keys only.
  Status list(const std::function<bool(const StoredPlan&)>& visit, const Hash128* after = nullptr);
  Result<StoreStats> stats();
  // Reads every record there is. Damaged ones are listed, and removed unless the store is read-only.
  // `progress` is told now and then how many of how many records are done.
  Result<VerifyReport> verify_all(const std::function<void(uint64_t done, uint64_t total)>& progress = {});

  // Waits until everything queued before is durable or refused, noted uses included; the status of the commit
  // that this wait travelled with.
  Status flush();

 private:
  class Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The "device" of timings that the cost model says.
inline constexpr const char* kModelDevice = "model";

// Names for set_meta.
inline constexpr const char* kMetaToolchain =
    "toolchain";  // fingerprint last seen: lets hits work without NVRTC

}  // namespace quern
