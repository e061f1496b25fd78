// One quern-worker process and the socket to it. Blocking, with deadlines: each lives on a thread of its own.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capi/wire/frame.h"
#include "capi/wire/messages.h"
#include "core/base/status.h"
#include "daemon/workers.h"

namespace quern {

class WorkerProcess {
 public:
  // Starts `command` with a socket as its standard input, its output going to standard error. NO_COMPILER
  // when it cannot.
  static Result<std::unique_ptr<WorkerProcess>> spawn(const std::vector<std::string>& command);
  // Kills it if it still runs.
  ~WorkerProcess();

  // Waits for its greeting: must be called first. NO_COMPILER when it does not greet in time, or not as it
  // should; whether it has a compiler and a GPU is in what it said. CANCELLED when somebody else kills it.
  Status greet();
  const wire::WorkerHello& hello() const { return hello_; }
  const std::string& toolchain() const { return hello_.toolchain; }
  // Whether it waits for a job. A process that was killed while idle is not alive.
  bool alive() const;
  // WORKER when it dies, CANCELLED when somebody else kills it, TIMEOUT when it is killed here because it
  // takes longer than `limit_ms` and has said nothing of use so far; it is of no use afterwards.
  Result<wire::JobDone> run(const JobSpec& spec, int64_t limit_ms,
                            const std::function<void(wire::JobProgress)>& on_progress = {});
  // From any thread: makes greet() or run() return soon, and the process useless.
  void interrupt();

 private:
  WorkerProcess(pid_t pid, int fd) : pid_(pid), fd_(fd) {}

  Status send(std::string_view bytes, int64_t deadline_ms);
  // The next frame; TIMEOUT when there is none until the deadline, WORKER when the process is gone.
  Result<wire::Frame> receive(int64_t deadline_ms);
  Result<wire::JobDone> receive_answer(int64_t deadline_ms,
                                       const std::function<void(wire::JobProgress)>& on_progress);
  // Reaps it, after a SIGKILL if it does not go by itself, and says how it ended: the words are `what` and
  // the end.
  Status end(ErrorCode code, const std::string& what);

  pid_t pid_;  // 0 after it was reaped
  const int fd_;
  std::atomic<bool> interrupted_ = false;
  wire::WorkerHello hello_;
  wire::FrameReader reader_;
  uint64_t last_request_ = 0;
};

}  // namespace quern
