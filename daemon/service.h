// Frames in, frames out: what each request of the protocol means. Loop-free: the server feeds it and carries
// its answers; tests do so without sockets.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "cache/store.h"
#include "capi/wire/messages.h"
#include "daemon/fleet.h"
#include "daemon/latency.h"
#include "daemon/log.h"
#include "daemon/planner.h"
#include "daemon/subscriptions.h"

namespace quern {

inline constexpr const char* kDaemonSoftware = "quernd 0.1.0";

struct ServiceOptions {
  uint32_t max_open_requests = 256;     // of one client
  uint32_t max_subscriptions = 65536;   // of one client
  size_t max_client_memory = 96 << 20;  // what all clients together may make the daemon hold
  uint64_t request_limit_ms = 600000;   // of a request that names no time
  size_t max_queued_jobs = 4096;        // of one client
  unsigned parsers = 1;                 // graphs parsed at a time
  bool search = true;                   // for better plans than baselines
  SearchLimits limits;                  // of searches
  MeasureSettings measuring;
  std::string socket, cache_dir, log_file;  // for statistics
};

class Service {
 public:
  struct Hooks {
    Store* store = nullptr;
    Status no_store;  // why it is null
    Workers* workers = nullptr;
    Post post;
    Aside::Run aside;
    Log* log = nullptr;
    Log* request_log = nullptr;        // a line for each answer; null: none
    std::function<uint64_t()> now_ns;  // steady
    std::function<void(ClientId, wire::OutFrame frame)> send;
    std::function<void()> shutdown;
    std::function<Result<wire::Reloaded>()> reload;
    std::function<void(wire::StatsReply&)> add_stats;  // the server's own
    Fleet* fleet = nullptr;                            // the second level, if there is one
  };

  Service(ServiceOptions options, Hooks hooks);
  ~Service();  // waits for a Verify that runs

  // The account is for what the server holds on the client's behalf.
  std::shared_ptr<Account> connect(ClientId client, uid_t user);
  void disconnect(ClientId client);
  // The greeting's answer, or the Error after which the server closes the connection.
  Result<std::string> greet(const wire::Frame& frame) const;
  // Any frame after the greeting. Answers through Hooks::send, now or later.
  void handle(ClientId client, const wire::Frame& frame);

  // To be called when Workers::compiler() has changed.
  void compiler_changed() { planner_.compiler_changed(); }
  // And Workers::gpus().
  void gpus_changed() { planner_.gpus_changed(); }
  // The time at which expire() has something to do.
  std::optional<uint64_t> next_deadline_ns() const;
  void expire();

  // Of requests from here on.
  void set_limits(uint32_t max_open_requests, uint64_t request_limit_ms) {
    options_.max_open_requests = max_open_requests;
    options_.request_limit_ms = request_limit_ms;
  }
  // The fleet's server has a better plan than the one that this node came with.
  void found_better(FleetPlan plan) { planner_.import(std::move(plan)); }

  void drain() { planner_.drain(); }
  void give_up() { planner_.give_up(); }
  // Nothing runs and nobody waits for an answer.
  bool idle() const;
  // The same, and no background job is left either.
  bool quiet() const { return idle() && planner_.quiet(); }
  bool verifying() const { return verifying_; }
  wire::StatsReply stats();
  const Budget& budget() const { return *budget_; }

 private:
  // A request that waits for its answer; gone as soon as it is answered, too late, or its client has left.
  struct Open {
    Charge charge;
    ClientId client = 0;
    uint64_t request = 0;
    uint16_t type = 0;  // of the message
    uint64_t arrived_ns = 0;
    uint64_t deadline_ns = 0;  // 0: none
    bool waits_for_tier = false;
    std::optional<Hash128> key;
  };
  struct Client {
    Asker asker;
    std::unordered_set<std::shared_ptr<Open>> open;
  };

  template <class M>
  void reply(const std::shared_ptr<Open>& open, const M& message);
  void reply_frame(const std::shared_ptr<Open>& open, wire::OutFrame frame);
  void dispatch(const std::shared_ptr<Open>& open, const wire::Frame& frame);
  void reply_error(const std::shared_ptr<Open>& open, const Status& status, std::optional<Hash128> key = {});
  template <class M>
  void reply_result(const std::shared_ptr<Open>& open, const Result<M>& result);
  // A callback that does nothing once the request is closed: `act` gets the request and what the callback is
  // given.
  template <class Act>
  auto if_open(const std::shared_ptr<Open>& open, Act act);
  // That answer with what they are given.
  template <class M>
  std::function<void(Result<M>)> result_replier(const std::shared_ptr<Open>& open);
  template <class M>
  std::function<void(Result<uint64_t>)> count_replier(const std::shared_ptr<Open>& open);
  // Does what takes long on another thread, and answers with what it gives.
  template <class Work>
  void reply_aside(const std::shared_ptr<Open>& open, Work work);
  // A plan that is in memory is sent at once: nothing is kept for such a request. False when there is none,
  // or anything is wrong with the request.
  bool answer_hit(Client& client, const wire::Frame& frame);
  wire::OutFrame plan_frame(Open& open, PlanAnswer answer);
  void send_answer(const Open& open, wire::OutFrame frame);
  void reply_plan(const std::shared_ptr<Open>& open, PlanAnswer answer);
  static size_t request_bytes(const wire::Frame& frame);
  Caller caller(const std::shared_ptr<Open>& open, uint8_t priority = 0) const;
  // PERMISSION for users who may ask for plans and no more.
  Status check_rights(const Client& client, const wire::Frame& frame) const;
  void set_deadline(const std::shared_ptr<Open>& open, uint32_t timeout_ms);
  bool is_open(const std::shared_ptr<Open>& open) const;
  // In the log of requests: how it ended.
  void note(const Open& open, const std::string& end) const;
  void close_request(const std::shared_ptr<Open>& open);
  // To all who have subscribed to the key.
  void push(const Hash128& key, const std::string& frame);

  // What is done on each request of messages.def.
#define QUERN_ON_request(name) void on(const std::shared_ptr<Open>& open, wire::name message);
#define QUERN_ON_owner(name) QUERN_ON_request(name)
#define QUERN_ON_greeting(name)
#define QUERN_ON_answer(name)
#define QUERN_ON_pushed(name)
#define QUERN_ON_worker(name)
#define QUERN_MESSAGE(name, number, kind, meaning) QUERN_ON_##kind(name)
#include "capi/wire/messages.def"
  Planner::Reply plan_replier(const std::shared_ptr<Open>& open);
  void remove(const std::shared_ptr<Open>& open, const std::vector<Hash128>& keys);
  void send_progress(const std::weak_ptr<Open>& request, const wire::Progress& progress);

  ServiceOptions options_;
  const Hooks hooks_;
  const std::shared_ptr<Budget> budget_;
  std::unordered_map<uid_t, std::shared_ptr<Account>> heirs_;  // for what clients leave behind
  Aside aside_;
  Planner planner_;
  const uint64_t started_ns_;
  uint64_t requests_ = 0;
  Latency hit_latency_, miss_latency_;  // of Get and Wait, without those that wait for a tier
  std::unordered_map<ClientId, Client> clients_;
  Subscriptions subscriptions_;
  std::set<std::pair<uint64_t, std::shared_ptr<Open>>> deadlines_;  // of open requests that have one
  std::thread verify_;
  bool verifying_ = false;
};

template <class M>
void Service::reply(const std::shared_ptr<Open>& open, const M& message) {
  if constexpr (std::is_same_v<M, wire::Error>)
    note(*open, std::string("end=") + error_name(static_cast<ErrorCode>(message.code)));
  else
    note(*open, "end=OK");
  reply_frame(open, wire::encode(open->request, message));
}

template <class M>
void Service::reply_result(const std::shared_ptr<Open>& open, const Result<M>& result) {
  if (!result.ok()) return reply_error(open, result.status(), open->key);
  reply(open, result.value());
}

template <class Act>
auto Service::if_open(const std::shared_ptr<Open>& open, Act act) {
  return [this, weak = std::weak_ptr(open), act = std::move(act)]<class... Given>(Given&&... given) {
    if (const auto still = weak.lock(); still && is_open(still)) act(still, std::forward<Given>(given)...);
  };
}

template <class M>
std::function<void(Result<M>)> Service::result_replier(const std::shared_ptr<Open>& open) {
  return if_open(open, [this](const auto& still, const Result<M>& result) { reply_result(still, result); });
}

template <class M>
std::function<void(Result<uint64_t>)> Service::count_replier(const std::shared_ptr<Open>& open) {
  return if_open(open, [this](const auto& still, const Result<uint64_t>& count) {
    count.ok() ? reply(still, M{*count}) : reply_error(still, count.status());
  });
}

template <class Work>
void Service::reply_aside(const std::shared_ptr<Open>& open, Work work) {
  using Answer = std::optional<decltype(work())>;
  const auto answer = std::make_shared<Answer>();
  aside_.ask(
      caller(open), [answer, work = std::move(work)] { answer->emplace(work()); },
      if_open(open, [this, answer](const auto& still) { reply_result(still, **answer); }));
}

}  // namespace quern
