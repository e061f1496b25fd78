#include "daemon/server.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "capi/wire/paths.h"
#include "capi/wire/prometheus.h"

namespace quern {

namespace {

constexpr uint64_t kDrainPollNs = 20'000'000;
constexpr uint64_t kIdleLookMs = 250;
constexpr int kAsideNice = 10;

template <class T>
uv_handle_t* handle(T* any) {
  return reinterpret_cast<uv_handle_t*>(any);
}

Server* server_of(const uv_handle_t* any) { return static_cast<Server*>(any->data); }

std::string own_directory() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return self.substr(0, self.rfind('/'));
}

}  // namespace

Server::Server(Options options, Log* log) : options_(std::move(options)), log_(log) {}

Server::~Server() {
  {
    std::lock_guard lock(posted_mutex_);
    take_posts_ = false;
    posted_.clear();
  }
  workers_.reset();
  if (store_) {
    if (Status status = store_->flush(); !status.ok())
      log_->warning("event=flush_failed reason=\"" + status.message() + "\"");
  }
  listener_.reset();
  if (service_ && service_->verifying()) {
    // A verification reads on for minutes and cannot be called back; all it reads is durable.
    log_->info("event=exit");
    _exit(0);
  }
  service_.reset();
  fleet_.reset();
  store_.reset();
  if (loop_open_) uv_loop_close(&loop_);
  sessions_.reset();
}

// ---- start
// ------------------------------------------------------------------------------------------------------------------

Status Server::start() {
  auto listener = options_.listening >= 0 ? Listener::adopt(options_.listening, options_.socket)
                                          : Listener::claim(options_.socket);
  if (!listener) return listener.status();
  listener_ = std::move(*listener);
  if (Status status = open_request_log(); !status.ok()) return status;
  if (Status status = open_store(); !status.ok()) return status;
  if (Status status = start_loop(); !status.ok()) return status;
  allow_files();
  limit_sessions();
  if (Status status = open_fleet(); !status.ok()) return status;
  start_workers();
  start_service();
  if (fleet_) fleet_->start();
  if (Status status = listen_for_metrics(); !status.ok()) return status;
  // Last of all, so that whoever connects finds a daemon that serves, and that minds its signals.
  if (Status status = sessions_->listen(listener_.get(), service_.get()); !status.ok()) return status;
  log_->info("event=start pid=" + std::to_string(getpid()) + " socket=\"" + options_.socket + "\" cache=\"" +
             options_.cache_dir + "\"");
  return {};
}

// As many open files as the system lets us have; clients beyond them are refused, so that the workers and the
// store never lack any.
void Server::allow_files() {
  constexpr uint64_t kOwnFiles = 32;
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_NOFILE, &files);
  const uint64_t others = kOwnFiles + 2 * (std::max(options_.workers, 4u) + options_.searchers);
  max_clients_ = std::min(options_.max_clients, files.rlim_cur > others ? files.rlim_cur - others : 1);
}

// Without a store the daemon still compiles; only a store that another daemon has is a reason not to start.
Status Server::open_store() {
  StoreOptions store_options;
  store_options.directory = options_.cache_dir;
  store_options.max_bytes = options_.cache_bytes;
  store_options.report = [this](const std::string& message) {
    log_->warning("event=store reason=\"" + message + "\"");
  };
  auto store = Store::open(store_options);
  // A killed daemon's child lets go of the socket's lock and of the cache's one right after the other
  // (Listener::lock).
  for (int tries = 0; tries < 5 && !store.ok() && store.status().code() == ErrorCode::BUSY; ++tries) {
    usleep(10000);
    store = Store::open(store_options);
  }
  if (store.ok()) {
    store_ = std::move(*store);
    if (store_->read_only()) log_->warning("event=store_read_only cache=\"" + options_.cache_dir + "\"");
    return {};
  }
  if (store.status().code() == ErrorCode::BUSY) return store.status();
  no_store_ = store.status();
  log_->error("event=no_store reason=\"" + no_store_.message() + "\"");
  return {};
}

// Settings that are no good are a reason not to start; a server that is down is none.
Status Server::open_fleet() {
  if (options_.fleet.address.empty()) return {};
  Fleet::Hooks hooks;
  hooks.store = store_ && !store_->read_only() ? store_.get() : nullptr;
  hooks.post = [this](std::function<void()> work) { post(std::move(work)); };
  hooks.aside = [this](Aside::Task work, Aside::Task done) { run_aside(std::move(work), std::move(done)); };
  hooks.log = log_;
  hooks.now_ns = uv_hrtime;
  hooks.found_better = [this](FleetPlan plan) { service_->found_better(std::move(plan)); };
  auto fleet = Fleet::open(&loop_, options_.fleet, std::move(hooks), [this] { arm_timer(); });
  if (!fleet) return fleet.status();
  fleet_ = std::move(*fleet);
  return {};
}

Status Server::start_loop() {
  if (const int code = uv_loop_init(&loop_); code != 0)
    return Status(ErrorCode::IO, std::string("no event loop: ") + uv_strerror(code));
  loop_open_ = true;
  uv_async_init(&loop_, &async_, [](uv_async_t* any) { server_of(handle(any))->run_posted(); });
  uv_timer_init(&loop_, &timer_);
  uv_timer_init(&loop_, &idle_);
  for (uv_handle_t* any : {handle(&async_), handle(&timer_), handle(&idle_)}) any->data = this;
  sessions_ = std::make_unique<Sessions>(&loop_, log_, [this] { arm_timer(); });
  const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
  for (size_t i = 0; i < std::size(numbers); ++i) {
    uv_signal_init(&loop_, &signals_[i]);
    signals_[i].data = this;
    uv_signal_start(
        &signals_[i], [](uv_signal_t* any, int number) { server_of(handle(any))->on_signal(number); },
        numbers[i]);
  }
  if (options_.idle_seconds > 0)
    uv_timer_start(
        &idle_, [](uv_timer_t* any) { server_of(handle(any))->look_whether_idle(); }, kIdleLookMs,
        kIdleLookMs);
  take_posts_ = true;
  return {};
}

Status Server::open_request_log() {
  if (options_.request_log.empty()) return {};
  request_log_.set_json(options_.log_json);
  request_log_.set_limit(options_.log_bytes);
  request_log_.set_every_line(true);
  return request_log_.open_file(options_.request_log);
}

Status Server::listen_for_metrics() {
  if (options_.metrics_port == 0) return {};
  metrics_ =
      std::make_unique<MetricsPort>(&loop_, [this] { return wire::prometheus_text(service_->stats()); });
  return metrics_->listen(static_cast<uint16_t>(options_.metrics_port));
}

std::vector<std::string> Server::worker_command() const {
  std::string path = options_.worker;
  if (path.empty()) {
    // In a build folder, in an installation that was moved as a whole, where it was installed.
    for (const std::string& place :
         {own_directory() + "/quern-worker", own_directory() + "/../libexec/quern/quern-worker",
          std::string(QUERN_LIBEXECDIR "/quern-worker")}) {
      path = place;
      if (access(path.c_str(), X_OK) == 0) break;
    }
  }
  std::vector<std::string> command = {path, "--cpu-seconds=" + std::to_string(options_.job_cpu_seconds),
                                      "--memory-mb=" + std::to_string(options_.job_memory_bytes >> 20)};
  if (!options_.nvrtc.empty()) command.push_back("--nvrtc=" + options_.nvrtc);
  return command;
}

void Server::start_workers() {
  WorkerPoolOptions pool;
  pool.command = worker_command();
  pool.count =
      options_.workers ? options_.workers : std::clamp(std::thread::hardware_concurrency() / 2, 1u, 4u);
  pool.searchers = static_cast<unsigned>(options_.searchers);
  pool.idle_seconds = options_.worker_idle_seconds;
  pool.job_limit_ms = static_cast<int64_t>(options_.job_seconds) * 1000;
  // What is not stored is not measured.
  pool.measure = options_.measure != MeasureSettings::When::never && store_;
  WorkerPool::Changed changed{[this] { service_->compiler_changed(); }, [this] { service_->gpus_changed(); }};
  const auto post = [this](std::function<void()> work) { this->post(std::move(work)); };
  workers_ = std::make_unique<WorkerPool>(pool, post, log_, std::move(changed));
}

ServiceOptions Server::service_options() const {
  ServiceOptions limits;
  limits.max_open_requests = static_cast<uint32_t>(options_.max_requests);
  limits.request_limit_ms = options_.request_seconds * 1000;
  limits.max_queued_jobs = options_.max_queued_jobs;
  limits.max_client_memory = options_.max_client_memory;
  limits.search = options_.searchers > 0;
  limits.limits = {options_.search_seconds * 1000, options_.optimize_seconds * 1000};
  limits.measuring = {options_.measure, options_.tune_seconds * 1000};
  limits.socket = options_.socket;
  limits.cache_dir = options_.cache_dir;
  limits.log_file = options_.log_file;
  return limits;
}

void Server::start_service() {
  Service::Hooks hooks;
  hooks.store = store_.get();
  hooks.no_store = no_store_;
  hooks.workers = workers_.get();
  hooks.post = [this](std::function<void()> work) { post(std::move(work)); };
  hooks.log = log_;
  hooks.request_log = options_.request_log.empty() ? nullptr : &request_log_;
  hooks.aside = [this](Aside::Task work, Aside::Task done) { run_aside(std::move(work), std::move(done)); };
  hooks.now_ns = uv_hrtime;
  hooks.send = [this](ClientId client, wire::OutFrame frame) { sessions_->send(client, std::move(frame)); };
  hooks.shutdown = [this] { drain(); };
  hooks.reload = [this] { return reload(); };
  hooks.fleet = fleet_.get();
  hooks.add_stats = [this](wire::StatsReply& stats) { sessions_->add_stats(stats); };
  service_ = std::make_unique<Service>(service_options(), hooks);
}

// ---- work from other threads
// ------------------------------------------------------------------------------------------------

void Server::post(std::function<void()> work) {
  std::lock_guard lock(posted_mutex_);
  if (!take_posts_) return;
  posted_.push_back(std::move(work));
  uv_async_send(&async_);
}

void Server::run_posted() {
  std::vector<std::function<void()>> work;
  {
    std::lock_guard lock(posted_mutex_);
    work.swap(posted_);
  }
  for (const auto& one : work) one();
  arm_timer();
}

// On libuv's threads, behind what the loop's own thread has to do.
void Server::run_aside(Aside::Task work, Aside::Task done) {
  struct Request {
    uv_work_t work;
    Aside::Task run, done;
    Server* server;
  };
  auto* request = new Request{{}, std::move(work), std::move(done), this};
  request->work.data = request;
  uv_queue_work(
      &loop_, &request->work,
      [](uv_work_t* any) {
        thread_local const int lowered = setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kAsideNice);
        static_cast<void>(lowered);
        static_cast<Request*>(any->data)->run();
      },
      [](uv_work_t* any, int) {
        const std::unique_ptr<Request> request(static_cast<Request*>(any->data));
        request->done();
        request->server->arm_timer();
      });
}

// ---- time and signals
// -------------------------------------------------------------------------------------------------------

void Server::arm_timer() {
  std::optional<uint64_t> next = service_->next_deadline_ns();
  if (const auto limit = sessions_->next_ns()) next = std::min(next.value_or(UINT64_MAX), *limit);
  if (draining_) next = std::min(next.value_or(UINT64_MAX), drain_poll_ns_);
  if (next.value_or(0) == armed_ns_) return;
  armed_ns_ = next.value_or(0);
  if (!next) {
    uv_timer_stop(&timer_);
    return;
  }
  const uint64_t now = uv_hrtime();
  const uint64_t wait_ms = *next > now ? (*next - now) / 1'000'000 + 1 : 0;
  uv_update_time(&loop_);
  uv_timer_start(
      &timer_, [](uv_timer_t* any) { server_of(handle(any))->on_timer(); }, wait_ms, 0);
}

void Server::on_timer() {
  armed_ns_ = 0;
  const uint64_t now = uv_hrtime();
  service_->expire();
  sessions_->expire(now);
  if (draining_ && (finished() || now >= drain_limit_ns_)) return stop();
  // A time, not a distance: clients that come meanwhile arm the timer again and must not put the look off.
  if (now >= drain_poll_ns_) drain_poll_ns_ = now + kDrainPollNs;
  arm_timer();
}

void Server::on_signal(int number) {
  if (number == SIGHUP) {
    Status status = log_->reopen();
    if (status.ok()) status = request_log_.reopen();
    log_->info(status.ok() ? "event=log_reopened"
                           : "event=log_not_reopened reason=\"" + status.message() + "\"");
    if (const auto reloaded = reload(); !reloaded.ok())
      log_->error("event=not_reloaded reason=\"" + reloaded.status().message() + "\"");
    return;
  }
  log_->info(std::string("event=signal name=\"") + strsignal(number) + "\"");
  draining_ ? stop() : drain();
}

void Server::look_whether_idle() {
  const uint64_t now = uv_hrtime();
  if (!sessions_->empty() || !service_->quiet() || (fleet_ && !fleet_->settled()) || busy_ns_ == 0)
    busy_ns_ = now;
  if (draining_ || now - busy_ns_ < options_.idle_seconds * 1'000'000'000) return;
  log_->info("event=idle_exit seconds=" + std::to_string(options_.idle_seconds));
  // Who connects from here on waits for the next daemon, or starts it.
  sessions_->stop_listening();
  drain();
}

void Server::drain() {
  if (draining_) return;
  draining_ = true;
  drain_limit_ns_ = uv_hrtime() + options_.drain_seconds * 1'000'000'000;
  drain_poll_ns_ = uv_hrtime();
  log_->info("event=drain");
  service_->drain();
  arm_timer();
}

bool Server::finished() const {
  return service_->idle() && (!fleet_ || fleet_->settled()) && sessions_->all_sent();
}

void Server::stop() {
  service_->give_up();
  {
    std::lock_guard lock(posted_mutex_);
    take_posts_ = false;
  }
  sessions_->close();
  if (fleet_) fleet_->close();
  if (metrics_) metrics_->close();
  for (uv_handle_t* any : {handle(&async_), handle(&timer_), handle(&idle_), handle(&signals_[0]),
                           handle(&signals_[1]), handle(&signals_[2])})
    uv_close(any, nullptr);
}

void Server::run() {
  uv_run(&loop_, UV_RUN_DEFAULT);
  log_->info("event=stop");
}

}  // namespace quern
