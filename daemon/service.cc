#include "daemon/service.h"

#include <unistd.h>

#include <algorithm>

#include "daemon/catalog.h"
#include "daemon/import.h"

namespace quern {

namespace {

constexpr size_t kRequestBytes = 512, kSubscriptionBytes = 192;  // besides what they carry

}  // namespace

Service::Service(ServiceOptions options, Hooks hooks)
    : options_(std::move(options)),
      hooks_(std::move(hooks)),
      budget_(std::make_shared<Budget>(options_.max_client_memory)),
      aside_(hooks_.aside, options_.parsers),
      planner_({hooks_.store, hooks_.no_store, hooks_.workers, hooks_.post, &aside_, hooks_.log,
                hooks_.now_ns, options_.max_queued_jobs, options_.search, options_.limits, options_.measuring,
                [this](const Hash128& key, uint64_t generation, Tier tier) {
                  push(key, wire::encode(0, wire::Better{key, generation, tier}));
                },
                [this](const Hash128& key) { push(key, wire::encode(0, wire::Failed{key})); }, hooks_.fleet}),
      started_ns_(hooks_.now_ns()) {}

Service::~Service() {
  if (verify_.joinable()) verify_.join();
}

// ---- clients and their requests
// ---------------------------------------------------------------------------------------------

std::shared_ptr<Account> Service::connect(ClientId id, uid_t user) {
  Client& client = clients_[id];
  client.user = user;
  client.account = std::make_shared<Account>(budget_);
  return client.account;
}

void Service::disconnect(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const auto open = found->second.open;  // a copy: closing changes the set
  for (const auto& request : open) {
    note(*request, "end=client_left");
    close_request(request);
  }
  for (const auto& [key, charge] : found->second.subscriptions) drop_subscriber(key, id);
  const uid_t user = found->second.user;
  clients_.erase(found);
  std::shared_ptr<Account>& heir = heirs_[user];
  if (!heir) heir = std::make_shared<Account>(budget_);
  planner_.leave(Asker{user, id, nullptr, 0}, heir);
}

Caller Service::caller(const std::shared_ptr<Open>& open, uint8_t priority) const {
  const Client& client = clients_.at(open->client);
  return {{client.user, open->client, client.account, priority}, open};
}

Status Service::check_rights(const Client& client, const wire::Frame& frame) const {
  bool for_owner = false;
  wire::visit_message(frame.type, [&]<class M>() { for_owner = M::kKind == wire::MessageKind::owner; });
  if (!for_owner || client.user == geteuid() || client.user == 0) return {};
  return Status(ErrorCode::PERMISSION, std::string(wire::message_name(frame.type)) +
                                           " is for the user that runs the daemon; others may ask for plans");
}

Result<std::string> Service::greet(const wire::Frame& frame) const {
  auto hello = wire::decode_as<wire::Hello>(frame);
  if (!hello) return hello.status();
  if (hello->version_low > wire::kProtocolVersion || hello->version_high < wire::kProtocolVersion)
    return Status(ErrorCode::PROTOCOL,
                  "this daemon (" + std::string(kDaemonSoftware) + ") speaks protocol version " +
                      std::to_string(wire::kProtocolVersion) + " and the client \"" + hello->software +
                      "\" versions " + std::to_string(hello->version_low) + " to " +
                      std::to_string(hello->version_high) + "; update the older of the two");
  wire::Welcome welcome;
  welcome.version = wire::kProtocolVersion;
  welcome.capabilities = wire::kCapabilityBetter;
  welcome.software = kDaemonSoftware;
  welcome.max_frame_bytes = wire::kMaxRequestBytes;
  welcome.max_open_requests = options_.max_open_requests;
  welcome.toolchain = planner_.toolchain();
  welcome.pid = static_cast<uint32_t>(getpid());
  return wire::encode(frame.request, welcome);
}

void Service::handle(ClientId id, const wire::Frame& frame) {
  Client& client = clients_.at(id);
  ++requests_;
  if (frame.type == static_cast<uint16_t>(wire::Get::kType) && answer_hit(id, client, frame)) return;
  auto open = std::make_shared<Open>();
  open->client = id;
  open->request = frame.request;
  open->type = frame.type;
  open->arrived_ns = hooks_.now_ns();
  const size_t others = client.open.size();
  client.open.insert(open);
  if (frame.request == 0)
    return reply_error(open, Status(ErrorCode::PROTOCOL, "a request cannot have the id 0"));
  if (others >= options_.max_open_requests)
    return reply_error(
        open, Status(ErrorCode::BUSY, std::to_string(others) + " requests of this client wait already"));
  if (Status status = check_rights(client, frame); !status.ok()) return reply_error(open, status);
  open->charge = charge_request(client, frame);
  if (!open->charge.ok())
    return reply_error(open, Status(ErrorCode::BUSY,
                                    "the requests of this client, or of all, take more memory "
                                    "than they may; try again later"));
  dispatch(open, frame);
}

bool Service::answer_hit(ClientId id, const Client& client, const wire::Frame& frame) {
  if (frame.request == 0 || client.open.size() >= options_.max_open_requests ||
      frame.payload.size() > 2 * Planner::kLongText)
    return false;
  Open open;
  open.client = id;
  open.request = frame.request;
  open.type = frame.type;
  open.arrived_ns = hooks_.now_ns();
  open.charge = charge_request(client, frame);
  wire::Get get;
  if (!open.charge.ok() || !wire::decode(frame.payload, get).ok()) return false;
  if (get.tier > 0 || get.flags & ~wire::kGetKnownFlags) return false;
  const PlanRequest request{std::move(get.graph), std::move(get.target), get.numerics,
                            std::move(get.constraints)};
  auto found = planner_.find_recent(request, get.flags, {client.user, id, client.account, get.priority});
  if (!found) return false;
  open.charge = {};
  send_answer(open, plan_frame(open, Planner::stored_answer(std::move(found))));
  return true;
}

// The message itself, and what is made of it: the canonical text and the key.
Charge Service::charge_request(const Client& client, const wire::Frame& frame) {
  return Charge(client.account, kRequestBytes + 3 * frame.payload.size());
}

void Service::dispatch(const std::shared_ptr<Open>& open, const wire::Frame& frame) {
  auto refuse = [&] {
    reply_error(open, Status(ErrorCode::PROTOCOL, "message " + std::to_string(frame.type) + " (" +
                                                      wire::message_name(frame.type) +
                                                      ") is not one that a client sends"));
  };
  const bool known = wire::visit_message(frame.type, [&]<class M>() {
    if constexpr (M::kKind == wire::MessageKind::request || M::kKind == wire::MessageKind::owner) {
      M message;
      if (Status status = wire::decode(frame.payload, message); !status.ok())
        return reply_error(open, status);
      on(open, std::move(message));
    } else {
      refuse();
    }
  });
  if (!known) refuse();
}

void Service::note(const Open& open, const std::string& end) const {
  if (!hooks_.request_log) return;
  const auto client = clients_.find(open.client);
  hooks_.request_log->info("event=request client=" + std::to_string(open.client) +
                           " uid=" + (client == clients_.end() ? "?" : std::to_string(client->second.user)) +
                           " message=" + wire::message_name(open.type) +
                           (open.key ? " key=" + to_hex(*open.key) : "") + " " + end +
                           " us=" + std::to_string((hooks_.now_ns() - open.arrived_ns) / 1000));
}

template <class M>
void Service::reply(const std::shared_ptr<Open>& open, const M& message) {
  if constexpr (std::is_same_v<M, wire::Error>)
    note(*open, std::string("end=") + error_name(static_cast<ErrorCode>(message.code)));
  else
    note(*open, "end=OK");
  reply_frame(open, wire::encode(open->request, message));
}

void Service::reply_frame(const std::shared_ptr<Open>& open, wire::OutFrame frame) {
  close_request(open);
  send_answer(*open, std::move(frame));
}

void Service::send_answer(const Open& open, wire::OutFrame frame) {
  if (frame.size() > wire::kMaxFrameBytes)
    frame = wire::encode(
        open.request,
        wire::to_error(Status(ErrorCode::LIMIT, "the answer has " + std::to_string(frame.size()) +
                                                    " bytes, more than a frame can hold")));
  hooks_.send(open.client, std::move(frame));
}

void Service::reply_error(const std::shared_ptr<Open>& open, const Status& status,
                          std::optional<Hash128> key) {
  wire::Error error = wire::to_error(status);
  if (key) error.key = *key;
  reply(open, error);
}

template <class M>
void Service::reply_result(const std::shared_ptr<Open>& open, const Result<M>& result) {
  if (!result.ok()) return reply_error(open, result.status(), open->key);
  reply(open, result.value());
}

template <class Work>
void Service::reply_aside(const std::shared_ptr<Open>& open, Work work) {
  using Answer = std::optional<decltype(work())>;
  const auto answer = std::make_shared<Answer>();
  aside_.ask(
      caller(open), [answer, work = std::move(work)] { answer->emplace(work()); },
      [this, answer, weak = std::weak_ptr(open)] {
        if (const auto still = weak.lock(); still && is_open(still)) reply_result(still, **answer);
      });
}

void Service::close_request(const std::shared_ptr<Open>& open) {
  if (open->deadline_ns) deadlines_.erase({open->deadline_ns, open});
  open->deadline_ns = 0;
  open->charge = {};
  planner_.leave(open.get());
  const auto client = clients_.find(open->client);
  if (client != clients_.end()) client->second.open.erase(open);
}

void Service::set_deadline(const std::shared_ptr<Open>& open, uint32_t timeout_ms) {
  const uint64_t limit_ms = timeout_ms ? timeout_ms : options_.request_limit_ms;
  open->deadline_ns = open->arrived_ns + limit_ms * 1'000'000;
  deadlines_.insert({open->deadline_ns, open});
}

std::optional<uint64_t> Service::next_deadline_ns() const {
  const std::optional<uint64_t> put_off = planner_.next_ns();
  if (deadlines_.empty()) return put_off;
  return std::min(deadlines_.begin()->first, put_off.value_or(UINT64_MAX));
}

void Service::expire() {
  planner_.expire();
  const uint64_t now = hooks_.now_ns();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const std::shared_ptr<Open> late = deadlines_.begin()->second;
    const uint64_t waited_ms = (now - late->arrived_ns) / 1'000'000;
    const std::string put_off = planner_.why_late(late.get());
    const std::string waited = " after " + std::to_string(waited_ms) + " ms; ";
    reply_error(late,
                Status(ErrorCode::TIMEOUT,
                       put_off.empty() ? "no plan" + waited + "the job goes on, ask again or wait longer"
                                       : "no measured plan" + waited + "measuring is " + put_off),
                late->key);
  }
}

bool Service::is_open(const std::shared_ptr<Open>& open) const {
  const auto client = clients_.find(open->client);
  return client != clients_.end() && client->second.open.contains(open);
}

bool Service::idle() const {
  if (!planner_.idle() || verifying_) return false;
  return std::all_of(clients_.begin(), clients_.end(),
                     [](const auto& entry) { return entry.second.open.empty(); });
}

// ---- plans
// ------------------------------------------------------------------------------------------------------------------

void Service::reply_plan(const std::shared_ptr<Open>& open, PlanAnswer answer) {
  if (answer.status.code() == ErrorCode::PENDING) {
    wire::Pending pending;
    pending.key = *answer.key;
    pending.state = answer.state;
    return reply(open, pending);
  }
  if (!answer.status.ok()) return reply_error(open, answer.status, answer.key);
  reply_frame(open, plan_frame(*open, std::move(answer)));
}

wire::OutFrame Service::plan_frame(Open& open, PlanAnswer answer) {
  wire::PlanReply plan;
  plan.key = *answer.key;
  plan.generation = answer.generation;
  plan.tier = answer.tier;
  plan.origin = answer.origin;
  plan.unstored = !answer.stored.ok();
  if (plan.unstored) plan.warning = "the plan was not stored: " + answer.stored.message();
  plan.total_ns = hooks_.now_ns() - open.arrived_ns;
  // Who waits for a better tier says nothing about how quick an answer is.
  if (!open.waits_for_tier)
    (answer.origin == wire::Origin::hit && !answer.elsewhere ? hit_latency_ : miss_latency_)
        .add(plan.total_ns);
  plan.queue_ns = answer.queue_ns;
  plan.emit_ns = answer.emit_ns;
  plan.compile_ns = answer.compile_ns;
  open.key = answer.key;
  if (hooks_.request_log)
    note(open, std::string("end=OK origin=") +
                   (answer.elsewhere ? "fleet" : wire::origin_name(answer.origin)) +
                   " tier=" + tier_name(answer.tier) + " generation=" + std::to_string(answer.generation));
  return wire::encode(open.request, plan, std::move(answer.plan));
}

void Service::on(const std::shared_ptr<Open>& open, wire::Get message) {
  if (message.flags & ~wire::kGetKnownFlags)
    return reply_error(
        open, Status(ErrorCode::PROTOCOL, "Get with unknown flags " + std::to_string(message.flags)));
  // The planner and its jobs do not own the request: it is theirs to answer only as long as its client wants
  // it.
  open->waits_for_tier = message.tier > 0;
  auto ask = std::make_shared<PlanAsk>();
  ask->request = {std::move(message.graph), std::move(message.target), message.numerics,
                  std::move(message.constraints)};
  ask->flags = message.flags;
  ask->wanted = message.tier;
  ask->caller = caller(open, message.priority);
  ask->key = std::shared_ptr<std::optional<Hash128>>(open, &open->key);
  ask->reply = plan_replier(open);
  planner_.get(std::move(ask));
  if (is_open(open)) set_deadline(open, message.timeout_ms);
}

void Service::on(const std::shared_ptr<Open>& open, wire::Wait message) {
  open->key = message.key;
  open->waits_for_tier = message.tier > 0;
  planner_.wait(message.key, message.tier, caller(open), plan_replier(open));
  if (is_open(open)) set_deadline(open, message.timeout_ms);
}

Planner::Reply Service::plan_replier(const std::shared_ptr<Open>& open) {
  return [this, weak = std::weak_ptr(open)](PlanAnswer answer) {
    if (const auto still = weak.lock(); still && is_open(still)) reply_plan(still, std::move(answer));
  };
}

void Service::on(const std::shared_ptr<Open>& open, wire::Tune message) {
  open->key = message.key;
  const std::weak_ptr<Open> weak = open;
  const auto on_progress = [this, weak, wanted = message.progress != 0](const wire::JobProgress& progress) {
    if (wanted)
      send_progress(weak, {progress.tried, progress.programs, progress.best_ps, progress.baseline_ps});
  };
  const auto on_end = [this, weak](Result<wire::TuneReply> result) {
    if (const auto still = weak.lock(); still && is_open(still)) reply_result(still, result);
  };
  planner_.tune({message.key, message.budget_ms, static_cast<int>(message.gpu) - 1}, caller(open),
                on_progress, on_end);
  if (is_open(open)) set_deadline(open, message.timeout_ms);
}

void Service::on(const std::shared_ptr<Open>& open, wire::JobStatus message) {
  reply(open, planner_.status(message.key));
}

void Service::on(const std::shared_ptr<Open>& open, wire::Explain message) {
  planner_.explain(
      {std::move(message.graph), std::move(message.target), message.numerics, std::move(message.constraints)},
      caller(open), [this, weak = std::weak_ptr(open)](const Result<wire::ExplainReply>& explained) {
        if (const auto still = weak.lock(); still && is_open(still)) reply_result(still, explained);
      });
}

void Service::on(const std::shared_ptr<Open>& open, wire::Subscribe message) {
  Client& client = clients_.at(open->client);
  Charge charge(client.account, kSubscriptionBytes);
  if (client.subscriptions.size() >= options_.max_subscriptions || !charge.ok())
    return reply_error(open, Status(ErrorCode::LIMIT, std::to_string(client.subscriptions.size()) +
                                                          " subscriptions of this client stand already"));
  client.subscriptions.try_emplace(message.key, std::move(charge));
  subscribers_[message.key].insert(open->client);
  reply(open, wire::Subscribed{planner_.status(message.key).generation});
}

void Service::on(const std::shared_ptr<Open>& open, wire::Unsubscribe message) {
  if (clients_.at(open->client).subscriptions.erase(message.key)) drop_subscriber(message.key, open->client);
  reply(open, wire::Ack{});
}

void Service::drop_subscriber(const Hash128& key, ClientId client) {
  const auto subscribers = subscribers_.find(key);
  subscribers->second.erase(client);
  if (subscribers->second.empty()) subscribers_.erase(subscribers);
}

void Service::push(const Hash128& key, const std::string& frame) {
  const auto found = subscribers_.find(key);
  if (found == subscribers_.end()) return;
  const auto clients = found->second;  // a copy: sending can drop a slow client
  for (ClientId client : clients) hooks_.send(client, frame);
}

// ---- the store
// --------------------------------------------------------------------------------------------------------------

void Service::on(const std::shared_ptr<Open>& open, wire::List message) {
  if (!hooks_.store) return reply_error(open, hooks_.no_store);
  reply_aside(open, [store = hooks_.store, message] { return list_plans(*store, message); });
}

void Service::on(const std::shared_ptr<Open>& open, wire::Show message) {
  if (!hooks_.store) return reply_error(open, hooks_.no_store);
  open->key = message.key;
  reply_aside(open, [store = hooks_.store, key = message.key] { return show_plan(*store, key); });
}

void Service::on(const std::shared_ptr<Open>& open, wire::Remove message) {
  if (message.queued) return reply(open, wire::Removed{planner_.drop_queued(message.keys)});
  if (!hooks_.store) return reply_error(open, hooks_.no_store);
  if (!message.all) return remove(open, message.keys);
  const auto keys = std::make_shared<Result<std::vector<Hash128>>>(std::vector<Hash128>());
  aside_.ask(
      caller(open), [keys, store = hooks_.store] { *keys = all_keys(*store); },
      [this, keys, weak = std::weak_ptr(open)] {
        const auto still = weak.lock();
        if (!still || !is_open(still)) return;
        keys->ok() ? remove(still, keys->value()) : reply_error(still, keys->status());
      });
}

void Service::on(const std::shared_ptr<Open>& open, wire::Import message) {
  if (!hooks_.store) return reply_error(open, hooks_.no_store);
  const auto put = std::make_shared<Result<PlanPut>>(PlanPut());
  aside_.ask(
      caller(open), [put, message = std::move(message)] { *put = put_of_import(message); },
      [this, put, weak = std::weak_ptr(open)] {
        const auto still = weak.lock();
        if (!still || !is_open(still)) return;
        if (!put->ok()) return reply_error(still, put->status());
        planner_.import(std::move(put->value()), [this, weak](const Result<PutOutcome>& outcome) {
          const auto waits = weak.lock();
          if (!waits || !is_open(waits)) return;
          if (!outcome.ok()) return reply_error(waits, outcome.status());
          reply(waits,
                wire::Imported{outcome.value().generation, outcome.value().tier, outcome.value().published});
        });
      });
}

void Service::remove(const std::shared_ptr<Open>& open, const std::vector<Hash128>& keys) {
  for (const Hash128& key : keys) planner_.forgive(key);
  remove_plans(*hooks_.store, keys, hooks_.post, [this, weak = std::weak_ptr(open)](Result<uint64_t> count) {
    const auto still = weak.lock();
    if (!still || !is_open(still)) return;
    if (!count.ok()) return reply_error(still, count.status());
    reply(still, wire::Removed{*count});
  });
}

void Service::on(const std::shared_ptr<Open>& open, wire::Pin message) {
  if (!hooks_.store) return reply_error(open, hooks_.no_store);
  const auto answer = [this, weak = std::weak_ptr(open)](const Result<uint64_t>& count) {
    const auto still = weak.lock();
    if (!still || !is_open(still)) return;
    if (!count.ok()) return reply_error(still, count.status());
    reply(still, wire::Pinned{*count});
  };
  pin_plans(*hooks_.store, message.keys, !message.unpin, hooks_.post, answer);
}

void Service::on(const std::shared_ptr<Open>& open, wire::Verify message) {
  if (!hooks_.store) return reply_error(open, hooks_.no_store);
  if (verifying_) return reply_error(open, Status(ErrorCode::BUSY, "a verification is under way already"));
  verifying_ = true;
  if (verify_.joinable()) verify_.join();
  verify_ = std::thread([this, weak = std::weak_ptr(open), progress = message.progress != 0] {
    auto report = hooks_.store->verify_all([&](uint64_t done, uint64_t total) {
      if (progress) hooks_.post([=, this] { send_progress(weak, {done, total, 0, 0}); });
    });
    hooks_.post([this, weak, report = std::move(report)] {
      verifying_ = false;
      const auto still = weak.lock();
      if (!still || !is_open(still)) return;
      if (!report.ok()) return reply_error(still, report.status());
      reply(still, verify_reply(report.value()));
    });
  });
}

void Service::send_progress(const std::weak_ptr<Open>& request, const wire::Progress& progress) {
  const auto still = request.lock();
  if (still && is_open(still)) hooks_.send(still->client, wire::encode(still->request, progress));
}

// ---- the daemon
// -------------------------------------------------------------------------------------------------------------

void Service::on(const std::shared_ptr<Open>& open, wire::Stats message) {
  if (!message.write || !hooks_.store) return reply(open, stats());
  try_write(*hooks_.store, hooks_.post, [this, weak = std::weak_ptr(open)](std::string how) {
    const auto still = weak.lock();
    if (!still || !is_open(still)) return;
    wire::StatsReply now = stats();
    now.facts.push_back({"store_write", std::move(how)});
    reply(still, now);
  });
}

void Service::on(const std::shared_ptr<Open>& open, wire::Ping message) {
  reply(open, wire::Pong{std::move(message.echo)});
}

void Service::on(const std::shared_ptr<Open>& open, wire::Reload) { reply_result(open, hooks_.reload()); }

void Service::on(const std::shared_ptr<Open>& open, wire::Shutdown) {
  reply(open, wire::Ack{});
  hooks_.shutdown();
}

}  // namespace quern
