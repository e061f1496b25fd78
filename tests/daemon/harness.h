// The service with a store, and workers that do what the test tells them; no socket, no process, no GPU.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "capi/wire/messages.h"
#include "daemon/service.h"
#include "tests/daemon/fake_plan.h"
#include "tests/support/test.h"

namespace quern {

// Holds every job until the test ends it; searches stand apart from baselines, as they do in the pool.
class FakeWorkers : public Workers {
 public:
  struct Running {
    JobSpec spec;
    Done done;
    OnProgress on_progress;
  };
  size_t slots = 1;
  CompilerState state{CompilerState::Kind::ready, "fake 1.0", ""};
  int looked_again = 0, started = 0;
  std::deque<Running> running, searching, measuring;
  std::vector<GpuState> devices;  // each measures one job at a time

  bool start(const JobSpec& spec, Done done, OnProgress on_progress) override {
    if (spec.kind == wire::JobKind::measure) {
      if (!takes_measuring(spec)) return false;
      measuring.push_back({spec, std::move(done), std::move(on_progress)});
      return true;
    }
    if (spec.kind == wire::JobKind::optimize) {
      if (!searching.empty()) return false;
      searching.push_back({spec, std::move(done), {}});
      return true;
    }
    if (running.size() >= slots) return false;
    ++started;
    running.push_back({spec, std::move(done), {}});
    return true;
  }
  std::vector<GpuState> gpus() const override { return devices; }
  CompilerState compiler() const override { return state; }
  void look_again() override { ++looked_again; }
  uint64_t count() const override { return slots; }
  uint64_t restarts() const override { return 0; }

  void finish(Result<wire::JobDone> result) { finish(running, std::move(result)); }
  void finish_search(Result<wire::JobDone> result) { finish(searching, std::move(result)); }
  void finish_measure(Result<wire::JobDone> result) { finish(measuring, std::move(result)); }
  void finish() {
    check(!running.empty(), "no job runs");
    const JobSpec& spec = running.front().spec;
    finish(wire::JobDone{fake_plan(spec.graph, spec.target), 1000, 2000});
  }
  // Ends a search with a plan that the model gives this time.
  void finish_search(uint64_t modelled_ns) {
    check(!searching.empty(), "no search runs");
    const JobSpec& spec = searching.front().spec;
    wire::JobDone done;
    done.plan = fake_plan(spec.graph, spec.target, 20000, Tier::modelled);
    done.modelled_ns = modelled_ns;
    done.report = "report";
    done.mugraph = "mugraph";
    done.schedule = "schedule";
    done.cuda = "cuda " + std::to_string(modelled_ns);
    finish_search(std::move(done));
  }

 private:
  // As many at a time as there are GPUs of the target.
  bool takes_measuring(const JobSpec& spec) const {
    const auto fits = [&](const GpuState& gpu) {
      return gpu.kind == GpuState::Kind::ready && gpu.target == spec.target &&
             (spec.gpu < 0 || spec.gpu == gpu.number);
    };
    const auto same = [&](const Running& job) { return job.spec.target == spec.target; };
    return std::count_if(measuring.begin(), measuring.end(), same) <
           std::count_if(devices.begin(), devices.end(), fits);
  }
  static void finish(std::deque<Running>& jobs, Result<wire::JobDone> result) {
    check(!jobs.empty(), "no job runs");
    Running job = std::move(jobs.front());
    jobs.pop_front();
    job.done(std::move(result));
  }
};

class Harness {
 public:
  std::filesystem::path dir = temp_dir();
  FakeWorkers workers;
  ServiceOptions options;
  std::unique_ptr<Store> store;
  std::unique_ptr<Service> service;
  Log log;
  uint64_t now = 1'000'000'000;
  int commit_error = 0;  // what every commit fails with
  bool shut_down = false;
  std::function<void()> meanwhile;  // happens once, while something is done aside

  explicit Harness(bool with_store = true) : with_store_(with_store) {
    log.set_level(LogLevel::error);
    open();
  }
  ~Harness() { close(); }

  void open() {
    StoreOptions store_options;
    store_options.directory = dir / "cache";
    store_options.report = [](const std::string&) {};
    store_options.commit_fault = [this] { return commit_error; };
    if (with_store_) {
      auto opened = Store::open(store_options);
      assert_ok(opened);
      store = std::move(*opened);
    }
    Service::Hooks hooks;
    hooks.store = store.get();
    hooks.no_store = with_store_ ? Status() : Status(ErrorCode::IO, "the disk is gone");
    hooks.workers = &workers;
    hooks.post = [this](std::function<void()> work) {
      std::lock_guard lock(mutex_);
      posted_.push_back(std::move(work));
      wake_.notify_all();
    };
    hooks.aside = [this](const Aside::Task& work, const Aside::Task& done) {
      work();
      if (const auto meanwhile = std::exchange(this->meanwhile, {})) meanwhile();
      done();
    };
    hooks.log = &log;
    hooks.now_ns = [this] { return now; };
    hooks.send = [this](ClientId client, const wire::OutFrame& frame) {
      readers_[client].append(frame.head);
      if (frame.body) readers_[client].append(*frame.body);
    };
    hooks.shutdown = [this] { shut_down = true; };
    service = std::make_unique<Service>(options, hooks);
    service->connect(1, geteuid());
    service->connect(2, geteuid());
  }
  void close() {
    store.reset();
    service.reset();
  }
  void reopen() {
    close();
    open();
  }

  template <class M>
  void send(ClientId client, uint64_t request, const M& message) {
    wire::FrameReader reader;
    reader.append(wire::encode(request, message));
    service->handle(client, **reader.next());
  }
  // Runs what other threads have posted until there is a frame for `client`.
  wire::Frame receive(ClientId client) {
    for (;;) {
      auto frame = readers_[client].next();
      assert_ok(frame);
      if (*frame) return **frame;
      if (!run_posted(5000)) fail_test("no answer");
    }
  }
  template <class M>
  M receive_as(ClientId client, uint64_t request) {
    const wire::Frame frame = receive(client);
    if (frame.type == static_cast<uint16_t>(wire::MessageType::Error) && M::kType != wire::MessageType::Error)
      assert_ok(wire::to_status(wire::decode_as<wire::Error>(frame).value()));
    assert_int_equal(frame.request, request);
    auto message = wire::decode_as<M>(frame);
    assert_ok(message);
    return std::move(*message);
  }
  template <class Reply, class M>
  Reply ask(const M& message, ClientId client = 1) {
    send(client, ++last_request_, message);
    return receive_as<Reply>(client, last_request_);
  }
  Status ask_error(const std::string& graph, uint32_t flags = 0) {
    return wire::to_status(ask<wire::Error>(get(graph, flags)));
  }
  bool silent(ClientId client) {
    while (run_posted(0)) {
    }
    return readers_[client].buffered() == 0;
  }
  // False when nothing is posted within that time.
  bool run_posted(int limit_ms) {
    std::vector<std::function<void()>> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return !posted_.empty(); });
      work.swap(posted_);
    }
    for (const auto& one : work) one();
    return !work.empty();
  }

  static wire::Get get(const std::string& graph, uint32_t flags = 0, const std::string& target = "sm_90a") {
    wire::Get message;
    message.graph = graph;
    message.target = target;
    message.flags = flags;
    return message;
  }
  // Asks for a graph and lets the worker make it.
  wire::PlanReply make(const std::string& graph) {
    send(1, ++last_request_, get(graph));
    workers.finish();
    return receive_as<wire::PlanReply>(1, last_request_);
  }

 private:
  const bool with_store_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> posted_;
  std::map<ClientId, wire::FrameReader> readers_;
  uint64_t last_request_ = 1000;
};

}  // namespace quern
