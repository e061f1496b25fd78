// What the daemon asks of its workers, as an interface: worker_pool.h has the real ones, tests have their
// own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/key.h"
#include "capi/wire/messages.h"
#include "core/base/status.h"

namespace quern {

// Runs a function on the daemon's one thread, later. May be called from any thread.
using Post = std::function<void(std::function<void()>)>;

// What a worker makes, and under which keys it is kept.
struct JobSpec {
  wire::JobKind kind = wire::JobKind::baseline;
  KeyMaterial material;  // of the plan
  KeyMaterial request;   // of the request that started it
  std::string graph;     // canonical text
  std::string target;
  uint32_t numerics = 0;
  std::string toolchain;           // what the key was made with: no other compiler may do this job
  std::string constraints, state;  // of a search
  uint64_t search_ms = 0;          // of a search: the time for finding programs
  uint32_t keep = 1;               // of a search: how many programs are compiled
  bool for_programs = false;       // of a search: they are to be measured, and are not stored
  uint64_t budget_ms = 0;          // all of its time; 0: it has none of its own
  std::string programs;            // of a measuring: encoded
  Hash128 standing;                // of a measuring: the name of the program that the stored plan is
  bool any_load = false;           // of a measuring: whoever else uses the GPU
  int gpu = -1;                    // of a measuring: on this one only; -1: any of the target
  std::string device;              // of a measuring: what that is, if it is known

  size_t bytes() const;  // about what it holds in memory
};

// The job of this kind for the plan whose key has this material; nothing when it is of another epoch.
std::optional<JobSpec> job_for(wire::JobKind kind, const Hash128& key, std::string_view material);

// Whether misses can be compiled.
struct CompilerState {
  enum class Kind { starting, ready, missing };
  Kind kind = Kind::starting;
  std::string toolchain;  // ready: the fingerprint
  std::string reason;     // missing: why
};

// Whether a job's status means that its process is gone through its own fault.
inline bool is_death(const Status& status) {
  return status.code() == ErrorCode::WORKER || status.code() == ErrorCode::TIMEOUT;
}

// A GPU that plans can be measured on, as its worker found it.
struct GpuState {
  enum class Kind { starting, ready, missing };
  int number = 0;
  Kind kind = Kind::starting;
  std::string device, target;  // ready: all that a timing depends on
  std::string reason;          // missing: why
  bool operator==(const GpuState&) const = default;
};

class Workers {
 public:
  // WORKER means that the process died, TIMEOUT that it was killed for taking too long, CANCELLED that it was
  // killed from outside; the message says how.
  using Done = std::function<void(Result<wire::JobDone>)>;
  // What a measuring says before it is done.
  using OnProgress = std::function<void(wire::JobProgress)>;

  virtual ~Workers() = default;
  // False when no worker for jobs of this kind is free: searches have workers of their own, so that a client
  // never waits behind one, and measuring has one a GPU. Else calls `done` on the daemon's thread, later,
  // exactly once, and `on_progress` (may be empty) any number of times before.
  virtual bool start(const JobSpec& spec, Done done, OnProgress on_progress) = 0;
  virtual CompilerState compiler() const = 0;
  // None where nothing is measured.
  virtual std::vector<GpuState> gpus() const = 0;
  // When there is no compiler or no GPU, looks for one again: somebody may have installed it. Not more often
  // than every few seconds.
  virtual void look_again() = 0;
  virtual uint64_t count() const = 0;
  virtual uint64_t restarts() const = 0;
};

}  // namespace quern
