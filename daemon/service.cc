#include "daemon/service.h"

#include <unistd.h>

#include <algorithm>

namespace quern {

namespace {

constexpr size_t kRequestBytes = 512;  // besides what it carries

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

// ---- clients and their requests ----

std::shared_ptr<Account> Service::connect(ClientId id, uid_t user) {
  Client& client = clients_[id];
  client.asker = {user, id, std::make_shared<Account>(budget_), 0};
  return client.asker.account;
}

void Service::disconnect(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const auto open = found->second.open;  // a copy: closing changes the set
  for (const auto& request : open) {
    note(*request, "end=client_left");
    close_request(request);
  }
  subscriptions_.remove_all(id);
  const uid_t user = found->second.asker.user;
  clients_.erase(found);
  std::shared_ptr<Account>& heir = heirs_[user];
  if (!heir) heir = std::make_shared<Account>(budget_);
  planner_.leave(Asker{user, id, nullptr, 0}, heir);
}

Caller Service::caller(const std::shared_ptr<Open>& open, uint8_t priority) const {
  Caller caller{clients_.at(open->client).asker, open};
  caller.asker.priority = priority;
  return caller;
}

Status Service::check_rights(const Client& client, const wire::Frame& frame) const {
  bool for_owner = false;
  wire::visit_message(frame.type, [&]<class M>() { for_owner = M::kKind == wire::MessageKind::owner; });
  if (!for_owner || client.asker.user == geteuid() || client.asker.user == 0) return {};
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
  if (frame.type == static_cast<uint16_t>(wire::Get::kType) && answer_hit(client, frame)) return;
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
  open->charge = Charge(client.asker.account, request_bytes(frame));
  if (!open->charge.ok())
    return reply_error(open, Status(ErrorCode::BUSY,
                                    "the requests of this client, or of all, take more memory "
                                    "than they may; try again later"));
  dispatch(open, frame);
}

bool Service::answer_hit(Client& client, const wire::Frame& frame) {
  if (frame.request == 0 || client.open.size() >= options_.max_open_requests ||
      frame.payload.size() > 2 * Planner::kLongText || !client.asker.account->has_room(request_bytes(frame)))
    return false;
  Open open;
  open.client = client.asker.client;
  open.request = frame.request;
  open.type = frame.type;
  open.arrived_ns = hooks_.now_ns();
  wire::Get get;
  if (!wire::decode(frame.payload, get).ok()) return false;
  if (get.tier > 0 || get.flags & ~wire::kGetKnownFlags) return false;
  const PlanRequest request{std::move(get.graph), std::move(get.target), get.numerics,
                            std::move(get.constraints)};
  client.asker.priority = get.priority;
  auto found = planner_.find_recent(request, get.flags, client.asker);
  if (!found) return false;
  send_answer(open, plan_frame(open, Planner::stored_answer(std::move(found))));
  return true;
}

// The message itself, and what is made of it: the canonical text and the key.
size_t Service::request_bytes(const wire::Frame& frame) { return kRequestBytes + 3 * frame.payload.size(); }

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
  hooks_.request_log->info(
      "event=request client=" + std::to_string(open.client) +
      " uid=" + (client == clients_.end() ? "?" : std::to_string(client->second.asker.user)) +
      " message=" + wire::message_name(open.type) + (open.key ? " key=" + to_hex(*open.key) : "") + " " +
      end + " us=" + std::to_string((hooks_.now_ns() - open.arrived_ns) / 1000));
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

// ---- answers with plans ----

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

void Service::push(const Hash128& key, const std::string& frame) {
  subscriptions_.each(key, [&](ClientId client) { hooks_.send(client, frame); });
}

}  // namespace quern
