#include "daemon/worker_pool.h"

#include <chrono>

namespace quern {

namespace {

constexpr int64_t kLookAgainMs = 5000;

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

WorkerPool::WorkerPool(WorkerPoolOptions options, Post post, Log* log, std::function<void()> changed)
    : options_(std::move(options)),
      post_(std::move(post)),
      log_(log),
      changed_(std::move(changed)),
      looked_ms_(now_ms()) {
  add_slots(options_.count, wire::JobKind::baseline);
  add_slots(options_.searchers, wire::JobKind::optimize);
  slots_[0]->look = true;
  for (auto& slot : slots_) slot->thread = std::thread([this, &slot = *slot] { serve(slot); });
}

void WorkerPool::add_slots(unsigned count, wire::JobKind kind) {
  for (unsigned i = 0; i < count; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->kind = kind;
  }
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    for (auto& slot : slots_)
      if (slot->process) slot->process->interrupt();
  }
  wake_.notify_all();
  for (auto& slot : slots_) slot->thread.join();
}

bool WorkerPool::start(const JobSpec& spec, Done done) {
  std::lock_guard lock(mutex_);
  Slot* chosen = nullptr;
  for (auto& slot : slots_)  // one that runs already rather than one that must be started
    if (!slot->task && slot->kind == spec.kind && (!chosen || (slot->process && !chosen->process)))
      chosen = slot.get();
  if (!chosen) return false;
  chosen->task = Task{spec, std::move(done)};
  wake_.notify_all();
  return true;
}

CompilerState WorkerPool::compiler() const {
  std::lock_guard lock(mutex_);
  return compiler_;
}

void WorkerPool::look_again() {
  std::lock_guard lock(mutex_);
  if (compiler_.kind != CompilerState::Kind::missing || now_ms() - looked_ms_ < kLookAgainMs) return;
  looked_ms_ = now_ms();
  slots_[0]->look = true;
  wake_.notify_all();
}

uint64_t WorkerPool::count() const {
  std::lock_guard lock(mutex_);
  uint64_t count = 0;
  for (const auto& slot : slots_) count += slot->process != nullptr;
  return count;
}

uint64_t WorkerPool::restarts() const {
  std::lock_guard lock(mutex_);
  return restarts_;
}

void WorkerPool::serve(Slot& slot) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || slot.task || slot.look; });
    if (stop_) return;
    if (!slot.task) {
      slot.look = false;
      lock.unlock();
      Status ignored = ensure_process(slot);  // set_compiler() has told whoever wants to know
      (void)ignored;
      lock.lock();
      continue;
    }
    const JobSpec spec = slot.task->spec;
    lock.unlock();
    Result<wire::JobDone> made = run(slot, spec);
    lock.lock();
    if (stop_) return;
    // Free before the completion runs, so that it finds a worker for the next job.
    Done done = std::move(slot.task->done);
    slot.task.reset();
    auto shared = std::make_shared<Result<wire::JobDone>>(std::move(made));
    post_([done = std::move(done), shared] { done(std::move(*shared)); });
  }
}

Result<wire::JobDone> WorkerPool::run(Slot& slot, const JobSpec& spec) {
  if (Status status = ensure_process(slot); !status.ok()) return status;
  if (slot.process->toolchain() != spec.toolchain) {
    // Either this process is older than the last change of the toolchain, or the change is not known yet.
    drop_process(slot);
    if (Status status = ensure_process(slot); !status.ok()) return status;
    if (slot.process->toolchain() != spec.toolchain)
      return Status(ErrorCode::BUSY, "the compiler has changed from " + spec.toolchain + " to " +
                                         slot.process->toolchain() + " meanwhile; ask again");
  }
  // A job with a budget keeps to it by itself; the rest is for what it cannot interrupt.
  const int64_t limit_ms = static_cast<int64_t>(spec.budget_ms) + options_.job_limit_ms;
  Result<wire::JobDone> done = slot.process->run(spec, limit_ms);
  if (!done && is_death(done.status())) {
    log_->warning("event=worker_died reason=\"" + done.status().message() + "\"");
    drop_process(slot);
  }
  return done;
}

Status WorkerPool::ensure_process(Slot& slot) {
  if (slot.process && slot.process->alive()) return {};
  drop_process(slot);
  std::vector<std::string> command = options_.command;
  if (slot.kind == wire::JobKind::optimize) command.push_back("--background");
  auto process = WorkerProcess::spawn(command);
  Status status = process.ok() ? Status() : process.status();
  if (status.ok()) {
    {
      // Where the destructor can interrupt the greeting, which may take long.
      std::lock_guard lock(mutex_);
      slot.process = std::move(*process);
      if (stop_) slot.process->interrupt();
      restarts_ += slot.started_before;
      slot.started_before = true;
    }
    status = slot.process->greet();
  }
  if (!status.ok()) {
    drop_process(slot);
    set_compiler({CompilerState::Kind::missing, "", status.message()});
    return status;
  }
  set_compiler({CompilerState::Kind::ready, slot.process->toolchain(), ""});
  return {};
}

void WorkerPool::set_compiler(CompilerState state) {
  std::lock_guard lock(mutex_);
  if (state.kind == compiler_.kind && state.toolchain == compiler_.toolchain &&
      state.reason == compiler_.reason)
    return;
  compiler_ = std::move(state);
  post_(changed_);
}

void WorkerPool::drop_process(Slot& slot) {
  std::unique_ptr<WorkerProcess> process;  // outlives the lock: its end may take a moment
  std::lock_guard lock(mutex_);
  process = std::move(slot.process);
}

}  // namespace quern
