// The worker processes: a thread for each, which starts it when it is first needed, gives it one job after
// another, and starts another when it dies.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/log.h"
#include "daemon/worker_process.h"
#include "daemon/workers.h"

namespace quern {

struct WorkerPoolOptions {
  std::vector<std::string> command;  // path of quern-worker and its arguments
  unsigned count = 1;                // for what clients wait for
  unsigned searchers = 1;            // for searches, started with --background
  int64_t job_limit_ms = 60000;      // wall clock
};

class WorkerPool : public Workers {
 public:
  // Starts the first worker at once, to learn what its compiler is. `changed` is called on the daemon's
  // thread after each change of compiler().
  WorkerPool(WorkerPoolOptions options, Post post, Log* log, std::function<void()> changed);
  // Kills what runs; jobs under way never call back.
  ~WorkerPool() override;

  bool start(const JobSpec& spec, Done done) override;
  CompilerState compiler() const override;
  void look_again() override;
  uint64_t count() const override;
  uint64_t restarts() const override;

 private:
  struct Task {
    JobSpec spec;
    Done done;
  };
  struct Slot {
    std::optional<Task> task;
    wire::JobKind kind = wire::JobKind::baseline;
    bool look = false;  // start the process although there is no task
    std::unique_ptr<WorkerProcess> process;
    bool started_before = false;
    std::thread thread;
  };

  void add_slots(unsigned count, wire::JobKind kind);
  void serve(Slot& slot);
  Result<wire::JobDone> run(Slot& slot, const JobSpec& spec);
  Status ensure_process(Slot& slot);
  void set_compiler(CompilerState state);
  void drop_process(Slot& slot);

  const WorkerPoolOptions options_;
  const Post post_;
  Log* const log_;
  const std::function<void()> changed_;

  mutable std::mutex mutex_;  // guards all below, and each slot's task, look, and process pointer
  std::condition_variable wake_;
  bool stop_ = false;
  CompilerState compiler_;
  uint64_t restarts_ = 0;
  int64_t looked_ms_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace quern
