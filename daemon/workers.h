// What the daemon asks of its workers, as an interface: worker_pool.h has the real ones, tests have their
// own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

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
  uint64_t budget_ms = 0;          // all of its time; 0: it has none of its own
};

// Whether misses can be compiled.
struct CompilerState {
  enum class Kind { starting, ready, missing };
  Kind kind = Kind::starting;
  std::string toolchain;  // ready: the fingerprint
  std::string reason;     // missing: why
};

// Whether a job's status means that its process is gone.
inline bool is_death(const Status& status) {
  return status.code() == ErrorCode::WORKER || status.code() == ErrorCode::TIMEOUT;
}

class Workers {
 public:
  // WORKER means that the process died, TIMEOUT that it was killed for taking too long; the message says how.
  using Done = std::function<void(Result<wire::JobDone>)>;

  virtual ~Workers() = default;
  // False when no worker for jobs of this kind is free: searches have workers of their own, so that a client
  // never waits behind one. Else calls `done` on the daemon's thread, later, exactly once.
  virtual bool start(const JobSpec& spec, Done done) = 0;
  virtual CompilerState compiler() const = 0;
  // When there is no compiler, looks for one again: somebody may have installed it. Not more often than every
  // few seconds.
  virtual void look_again() = 0;
  virtual uint64_t count() const = 0;
  virtual uint64_t restarts() const = 0;
};

}  // namespace quern
