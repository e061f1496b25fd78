// The inside of a worker process: takes jobs from a socket, one at a time, until it closes. All that is
// dangerous to run in the daemon (NVRTC first of all) runs here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "capi/wire/messages.h"
#include "core/base/status.h"
#include "daemon/workers.h"

namespace quern {

struct WorkerLimits {
  // Of each job, beside its own budget; then the process is killed by SIGXCPU. 0 = no limit.
  uint64_t cpu_seconds = 60;
  uint64_t memory_bytes = 4ull << 30;  // of address space; 0 = no limit
};

struct WorkerSkill {
  std::string
      toolchain;  // fingerprint of the compiler; empty: none, and then it greets with `reason` and leaves
  std::string reason;
  // Of a worker that measures: its GPU, or why there is none, and then it greets and leaves.
  bool measures = false;
  GpuState gpu;
  uint32_t gpus = 0;  // there are
  // May send what it has found so far.
  using Send = std::function<void(const wire::JobProgress&)>;
  std::function<Result<wire::JobDone>(const wire::Job&, const Send&)> run;

  bool useful() const { return measures ? gpu.kind == GpuState::Kind::ready : !toolchain.empty(); }
};

// Greets and serves until the end of the stream; the exit status of the process.
int run_worker(int socket, const WorkerSkill& skill, const WorkerLimits& limits);

}  // namespace quern
