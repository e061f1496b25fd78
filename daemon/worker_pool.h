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
  bool measure = false;              // one for each GPU, started with --measure=NUMBER when it is needed
  int64_t job_limit_ms = 60000;      // wall clock
  uint64_t idle_seconds = 0;         // a process that has nothing to do for so long is ended; 0: never
};

class WorkerPool : public Workers {
 public:
  struct Changed {
    std::function<void()> compiler, gpus;
  };

  // Starts the first worker at once, to learn what its compiler is, and one that measures, to learn which
  // GPUs there are. `changed` is called on the daemon's thread after each change of compiler() and gpus().
  WorkerPool(WorkerPoolOptions options, Post post, Log* log, Changed changed);
  // Kills what runs; jobs under way never call back.
  ~WorkerPool() override;

  bool start(const JobSpec& spec, Done done, OnProgress on_progress) override;
  CompilerState compiler() const override;
  std::vector<GpuState> gpus() const override;
  void look_again() override;
  uint64_t count() const override;
  uint64_t restarts() const override;

 private:
  struct Task {
    JobSpec spec;
    Done done;
    OnProgress on_progress;
  };
  struct Slot {
    std::optional<Task> task;
    wire::JobKind kind = wire::JobKind::baseline;
    bool look = false;  // start the process although there is no task
    GpuState gpu;       // of one that measures
    std::unique_ptr<WorkerProcess> process;
    bool started_before = false;
    std::thread thread;
  };

  Slot& add_slot(wire::JobKind kind);
  bool takes(const Slot& slot, const JobSpec& spec) const;
  void wait_for_work(std::unique_lock<std::mutex>& lock, Slot& slot);
  void serve(Slot& slot);
  Result<wire::JobDone> run(Slot& slot, const JobSpec& spec, const OnProgress& on_progress);
  Status ensure_compiler(Slot& slot, const std::string& toolchain);
  Status ensure_process(Slot& slot);
  Status start_process(Slot& slot);
  void set_compiler(CompilerState state);
  void set_gpu(Slot& slot, const wire::WorkerHello& hello, const std::string& reason);
  void drop_process(Slot& slot);

  const WorkerPoolOptions options_;
  const Post post_;
  Log* const log_;
  const Changed changed_;

  mutable std::mutex mutex_;  // guards all below, and each slot's task, look, and process pointer
  std::condition_variable wake_;
  bool stop_ = false;
  CompilerState compiler_;
  uint64_t restarts_ = 0;
  int64_t looked_ms_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace quern
