#include "daemon/worker_pool.h"

#include <algorithm>
#include <chrono>

namespace quern {

namespace {

constexpr int64_t kLookAgainMs = 5000;
constexpr auto kKeepMeasuring = std::chrono::seconds(5);
constexpr int kMostGpus = 64;
constexpr int kStartTries = 3;

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

WorkerPool::WorkerPool(WorkerPoolOptions options, Post post, Log* log, Changed changed)
    : options_(std::move(options)),
      post_(std::move(post)),
      log_(log),
      changed_(std::move(changed)),
      looked_ms_(now_ms()) {
  std::lock_guard lock(mutex_);
  for (unsigned i = 0; i < options_.count; ++i) add_slot(wire::JobKind::baseline);
  for (unsigned i = 0; i < options_.searchers; ++i) add_slot(wire::JobKind::optimize);
  slots_[0]->look = true;
  if (options_.measure) add_slot(wire::JobKind::measure).look = true;
}

// Called with the mutex held: the slot's thread waits for it.
WorkerPool::Slot& WorkerPool::add_slot(wire::JobKind kind) {
  Slot& slot = *slots_.emplace_back(std::make_unique<Slot>());
  slot.kind = kind;
  slot.thread = std::thread([this, &slot] { serve(slot); });
  return slot;
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

bool WorkerPool::takes(const Slot& slot, const JobSpec& spec) const {
  if (slot.task || slot.kind != spec.kind) return false;
  if (slot.kind != wire::JobKind::measure) return true;
  return slot.gpu.kind == GpuState::Kind::ready && slot.gpu.target == spec.target &&
         (spec.gpu < 0 || spec.gpu == slot.gpu.number);
}

bool WorkerPool::start(const JobSpec& spec, Done done, OnProgress on_progress) {
  std::lock_guard lock(mutex_);
  Slot* chosen = nullptr;
  for (auto& slot : slots_)  // one that runs already rather than one that must be started
    if (takes(*slot, spec) && (!chosen || (slot->process && !chosen->process))) chosen = slot.get();
  if (!chosen) return false;
  chosen->task = Task{spec, std::move(done), std::move(on_progress)};
  wake_.notify_all();
  return true;
}

std::vector<GpuState> WorkerPool::gpus() const {
  std::lock_guard lock(mutex_);
  std::vector<GpuState> gpus;
  for (const auto& slot : slots_)
    if (slot->kind == wire::JobKind::measure) gpus.push_back(slot->gpu);
  return gpus;
}

CompilerState WorkerPool::compiler() const {
  std::lock_guard lock(mutex_);
  return compiler_;
}

void WorkerPool::look_again() {
  std::lock_guard lock(mutex_);
  if (now_ms() - looked_ms_ < kLookAgainMs) return;
  looked_ms_ = now_ms();
  for (auto& slot : slots_)
    if (slot->kind == wire::JobKind::measure && slot->gpu.kind == GpuState::Kind::missing) slot->look = true;
  if (compiler_.kind == CompilerState::Kind::missing) slots_[0]->look = true;
  wake_.notify_all();
}

uint64_t WorkerPool::count() const {
  std::lock_guard lock(mutex_);
  uint64_t count = 0;
  for (const auto& slot : slots_) count += slot->process && slot->kind != wire::JobKind::measure;
  return count;
}

uint64_t WorkerPool::restarts() const {
  std::lock_guard lock(mutex_);
  return restarts_;
}

// A process that measures is not kept for long: its GPU belongs to others. The others hold memory.
void WorkerPool::wait_for_work(std::unique_lock<std::mutex>& lock, Slot& slot) {
  const auto work = [&] { return stop_ || slot.task || slot.look; };
  const bool measures = slot.kind == wire::JobKind::measure;
  if (!slot.process || (!measures && options_.idle_seconds == 0)) return wake_.wait(lock, work);
  if (wake_.wait_for(lock, measures ? kKeepMeasuring : std::chrono::seconds(options_.idle_seconds), work))
    return;
  lock.unlock();
  drop_process(slot);
  lock.lock();
  slot.started_before = false;  // the next one is no restart
  wake_.wait(lock, work);
}

void WorkerPool::serve(Slot& slot) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wait_for_work(lock, slot);
    if (stop_) return;
    if (!slot.task) {
      slot.look = false;
      lock.unlock();
      Status ignored = ensure_process(slot);  // whoever wants to know has been told
      (void)ignored;
      lock.lock();
      continue;
    }
    const JobSpec spec = slot.task->spec;
    const OnProgress on_progress = slot.task->on_progress;
    lock.unlock();
    Result<wire::JobDone> made = run(slot, spec, on_progress);
    lock.lock();
    if (stop_) return;
    // Free before the completion runs, so that it finds a worker for the next job.
    Done done = std::move(slot.task->done);
    slot.task.reset();
    auto shared = std::make_shared<Result<wire::JobDone>>(std::move(made));
    post_([done = std::move(done), shared] { done(std::move(*shared)); });
  }
}

// Makes sure that the process has this compiler: either it is older than the last change of the toolchain, or
// the change is not known yet.
Status WorkerPool::ensure_compiler(Slot& slot, const std::string& toolchain) {
  if (slot.process->toolchain() == toolchain) return {};
  drop_process(slot);
  if (Status status = ensure_process(slot); !status.ok()) return status;
  if (slot.process->toolchain() == toolchain) return {};
  return Status(ErrorCode::BUSY, "the compiler has changed from " + toolchain + " to " +
                                     slot.process->toolchain() + " meanwhile; ask again");
}

Result<wire::JobDone> WorkerPool::run(Slot& slot, const JobSpec& spec, const OnProgress& on_progress) {
  Status ready = ensure_process(slot);
  // What was compiled can be measured without its compiler.
  if (ready.ok() && slot.kind != wire::JobKind::measure) ready = ensure_compiler(slot, spec.toolchain);
  if (!ready.ok()) return ready;
  const auto post_progress = [&](wire::JobProgress progress) {
    if (on_progress) post_([on_progress, progress = std::move(progress)] { on_progress(progress); });
  };
  // A job with a budget keeps to it by itself; the rest is for what it cannot interrupt.
  const int64_t limit_ms = static_cast<int64_t>(spec.budget_ms) + options_.job_limit_ms;
  Result<wire::JobDone> done = slot.process->run(spec, limit_ms, post_progress);
  if (done) return done;
  if (is_death(done.status())) log_->warning("event=worker_died reason=\"" + done.status().message() + "\"");
  const bool gpu_lost = done.status().code() == ErrorCode::NO_DEVICE;
  if (is_death(done.status()) || gpu_lost) drop_process(slot);
  if (gpu_lost) set_gpu(slot, {}, done.status().message());
  return done;
}

Status WorkerPool::ensure_process(Slot& slot) {
  if (slot.process && slot.process->alive()) return {};
  drop_process(slot);
  Status status = start_process(slot);
  // What others kill says nothing about the compiler.
  for (int tries = 0; status.code() == ErrorCode::CANCELLED && tries < kStartTries; ++tries) {
    drop_process(slot);
    status = start_process(slot);
  }
  const wire::WorkerHello hello = status.ok() ? slot.process->hello() : wire::WorkerHello();
  if (slot.kind == wire::JobKind::measure) {
    if (status.ok() && hello.device.empty()) status = Status(ErrorCode::NO_DEVICE, hello.no_device);
    set_gpu(slot, hello, status.message());
  } else {
    if (status.ok() && hello.toolchain.empty()) status = Status(ErrorCode::NO_COMPILER, hello.reason);
    set_compiler(status.ok() ? CompilerState{CompilerState::Kind::ready, hello.toolchain, ""}
                             : CompilerState{CompilerState::Kind::missing, "", status.message()});
  }
  if (!status.ok()) drop_process(slot);
  return status;
}

Status WorkerPool::start_process(Slot& slot) {
  std::vector<std::string> command = options_.command;
  if (slot.kind == wire::JobKind::optimize) command.push_back("--background");
  if (slot.kind == wire::JobKind::measure) command.push_back("--measure=" + std::to_string(slot.gpu.number));
  auto process = WorkerProcess::spawn(command);
  if (!process) return process.status();
  {
    // Where the destructor can interrupt the greeting, which may take long.
    std::lock_guard lock(mutex_);
    slot.process = std::move(*process);
    if (stop_) slot.process->interrupt();
    restarts_ += slot.started_before && slot.kind != wire::JobKind::measure;
    slot.started_before = true;
  }
  return slot.process->greet();
}

// The first GPU's worker tells how many there are.
void WorkerPool::set_gpu(Slot& slot, const wire::WorkerHello& hello, const std::string& reason) {
  std::lock_guard lock(mutex_);
  GpuState state = slot.gpu;
  state.kind = reason.empty() ? GpuState::Kind::ready : GpuState::Kind::missing;
  state.device = reason.empty() ? hello.device : "";
  state.target = reason.empty() ? hello.target : "";
  state.reason = reason;
  if (state == slot.gpu) return;
  slot.gpu = std::move(state);
  const auto known = std::count_if(slots_.begin(), slots_.end(),
                                   [](const auto& each) { return each->kind == wire::JobKind::measure; });
  for (int number = static_cast<int>(known);
       !stop_ && number < static_cast<int>(hello.devices) && number < kMostGpus; ++number) {
    Slot& other = add_slot(wire::JobKind::measure);
    other.gpu.number = number;
    other.look = true;
  }
  post_(changed_.gpus);
}

void WorkerPool::set_compiler(CompilerState state) {
  std::lock_guard lock(mutex_);
  if (state.kind == compiler_.kind && state.toolchain == compiler_.toolchain &&
      state.reason == compiler_.reason)
    return;
  compiler_ = std::move(state);
  post_(changed_.compiler);
}

void WorkerPool::drop_process(Slot& slot) {
  std::unique_ptr<WorkerProcess> process;  // outlives the lock: its end may take a moment
  std::lock_guard lock(mutex_);
  process = std::move(slot.process);
}

}  // namespace quern
