#include "capi/client_handle.h"

#include <stdlib.h>
#include <time.h>

#include <tuple>

#include "capi/time_limit.h"

namespace quern {

namespace {

constexpr uint32_t kDefaultTimeoutMs = 60000, kDefaultMaxPlans = 1024, kDefaultLookMs = 100,
                   kNever = UINT32_MAX;

uint32_t or_default(uint32_t value, uint32_t fallback) { return value ? value : fallback; }

// Good to some milliseconds, and cheaper than the exact clock.
int64_t coarse_now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

PlanRequest plan_request(const quern_graph& graph, std::string_view target,
                         const quern_get_options& options) {
  const quern_graph::Text& text = graph.text();
  return {text.text, text.hash, target, options.numerics, options.constraints ? options.constraints : ""};
}

// `strict`: nothing is compiled.
wire::Get get_message(const PlanRequest& request, const quern_get_options& options, bool strict) {
  static_assert(QUERN_NO_WAIT == wire::kGetNoWait && QUERN_NO_COMPILE == wire::kGetNoStart);
  wire::Get get;
  get.graph = request.graph;
  get.target = request.target;
  get.numerics = request.numerics;
  get.constraints = request.constraints;
  get.flags = (options.flags & wire::kGetKnownFlags) | (strict ? wire::kGetNoStart : 0);
  get.priority = static_cast<uint8_t>(options.priority);
  get.timeout_ms = daemon_limit_ms(or_default(options.timeout_ms, kDefaultTimeoutMs));
  if (options.min_tier > QUERN_BASELINE) get.tier = static_cast<uint8_t>(options.min_tier);
  return get;
}

Status check_outputs(const quern_graph& graph) {
  if (!graph.graph().outputs.empty()) return {};
  return Status(ErrorCode::INVALID_GRAPH, "the graph has no output");
}

Status not_at_hand() {
  return Status(ErrorCode::NOT_FOUND, "the client does not have the plan, and the daemon may not be asked");
}

}  // namespace

TimePoint deadline_after(uint32_t timeout_ms) {
  const auto now = std::chrono::steady_clock::now();
  if (timeout_ms == kNever) return now + std::chrono::hours(24 * 365);
  return now + std::chrono::milliseconds(or_default(timeout_ms, kDefaultTimeoutMs));
}

}  // namespace quern

using namespace quern;

quern_client::quern_client(const quern_open_options& options)
    : table_(or_default(options.max_plans, kDefaultMaxPlans)),
      look_every_ns_(options.look_every_ms == kNever
                         ? -1
                         : int64_t{or_default(options.look_every_ms, kDefaultLookMs)} * 1000000) {}

Result<quern_client*> quern_client::open(const quern_open_options& options) {
  std::unique_ptr<quern_client> handle(new quern_client(options));
  if (Status status = handle->record_as_told(); !status.ok()) return status;
  ClientOptions client;
  if (options.socket) client.daemon.socket = options.socket;
  if (options.daemon) client.daemon.program = options.daemon;
  client.daemon.start = !(options.flags & QUERN_NO_START);
  if (options.timeout_ms) client.connect_timeout = std::chrono::milliseconds(options.timeout_ms);
  client.on_generation = [handle = handle.get()](const Hash128& key, uint64_t generation) {
    if (handle->table_.announce(key, generation)) handle->better_.fetch_add(1);
  };
  client.on_failed = [handle = handle.get()](const Hash128& key) {
    if (handle->table_.give_up(key)) handle->better_.fetch_add(1);
  };
  Result<std::unique_ptr<Client>> opened = Client::open(std::move(client));
  if (!opened) return opened.status();
  handle->client_ = std::move(*opened);
  return handle.release();
}

// What the daemon pushes must be noticed even by a program that never calls quern_process and gets all its
// plans from the table.
void quern_client::look_if_due() {
  if (look_every_ns_ < 0) return;
  const int64_t now = coarse_now_ns();
  if (now < next_look_ns_.load(std::memory_order_relaxed)) return;
  next_look_ns_.store(now + look_every_ns_, std::memory_order_relaxed);
  client_->look();
}

Status quern_client::record_as_told() {
  for (const auto& [variable, name, recorder] :
       {std::tuple{"QUERN_RECORD", "asked", &recorder_}, {"QUERN_STRICT", "missing", &missing_}}) {
    const char* directory = getenv(variable);
    if (!directory || !*directory) continue;
    Result<std::unique_ptr<Recorder>> opened = Recorder::open(directory, name);
    if (!opened) return opened.status().with_context(variable);
    *recorder = std::move(*opened);
  }
  return {};
}

void quern_client::note(const PlanRequest& request, const Result<PlanRef>& got) {
  if (recorder_)
    recorder_->note(request, got ? tier_name((*got)->reply().tier) : error_name(got.status().code()));
  if (missing_ && !got && got.status().code() == ErrorCode::NOT_FOUND) missing_->note(request, "missing");
}

Result<PlanRef> quern_client::get(const quern_graph& graph, std::string_view target,
                                  const quern_get_options& options) {
  if (Status status = client_->check_process(); !status.ok()) return status;
  if (Status status = check_outputs(graph); !status.ok()) return status;
  const PlanRequest request = plan_request(graph, target, options);
  look_if_due();
  Result<PlanRef> got = find(request, options);
  // A look at what is at hand is no request: who gets nothing asks again.
  if ((recorder_ || missing_) && (got || !(options.flags & QUERN_NO_REQUEST))) note(request, got);
  return got;
}

Result<PlanRef> quern_client::find(const PlanRequest& request, const quern_get_options& options) {
  const PlanTable::Found found = table_.find(request);
  const bool refresh = options.flags & QUERN_REFRESH;
  const bool low = found.plan && static_cast<int32_t>(found.plan->reply().tier) < options.min_tier;
  if (found.plan && !found.fetch && !refresh && !low) return found.plan;
  if (options.flags & QUERN_NO_REQUEST) return not_at_hand();

  Result<PlanRef> got = accept(request, client_->exchange(get_message(request, options, missing_ != nullptr),
                                                          deadline_after(options.timeout_ms)));
  if (got || !found.plan) return got;
  // A lost daemon announces the better plan again when it is back; otherwise the next call tries again.
  const ErrorCode code = got.status().code();
  if (found.fetch && (code == ErrorCode::TIMEOUT || code == ErrorCode::BUSY || code == ErrorCode::CANCELLED))
    table_.retry(found.plan->reply().key);
  // The plan at hand is still right.
  return refresh || low ? got : found.plan;
}

Result<PlanRef> quern_client::accept(const PlanRequest& request, Result<Answer> answer) {
  if (!answer) return answer.status();
  if (answer->is<wire::Pending>()) {
    const Result<wire::Pending> pending = answer->as<wire::Pending>();
    if (!pending) return pending.status();
    std::vector<Hash128> evicted;
    table_.expect(pending->key, evicted);
    // What the daemon has pushed before the key was expected is told again.
    client_->subscribe(pending->key, true);
    for (const Hash128& key : evicted) client_->unsubscribe(key);
    return Status(ErrorCode::PENDING, "");
  }
  Result<wire::PlanReply> reply = answer->as<wire::PlanReply>();
  if (!reply) return reply.status();
  Result<PlanRef> plan = quern_plan::make(std::move(*reply));
  if (!plan) return plan;
  PlanTable::Put put = table_.put(request, std::move(*plan));
  client_->subscribe(put.plan->reply().key);
  for (const Hash128& key : put.evicted) client_->unsubscribe(key);
  return std::move(put.plan);
}

std::vector<Status> quern_client::prewarm(const std::vector<const quern_graph*>& graphs,
                                          std::string_view target, const quern_get_options& options) {
  std::vector<Status> statuses(graphs.size());
  std::vector<wire::Get> messages;
  std::vector<size_t> asked;
  for (size_t i = 0; i < graphs.size(); ++i) {
    statuses[i] = check_outputs(*graphs[i]);
    if (!statuses[i].ok()) continue;
    const PlanRequest request = plan_request(*graphs[i], target, options);
    if (const PlanTable::Found found = table_.find(request);
        found.plan && !found.fetch && !(options.flags & QUERN_REFRESH) &&
        static_cast<int32_t>(found.plan->reply().tier) >= options.min_tier)
      continue;
    if (options.flags & QUERN_NO_REQUEST) {
      statuses[i] = not_at_hand();
      continue;
    }
    messages.push_back(get_message(request, options, missing_ != nullptr));
    asked.push_back(i);
  }
  std::vector<Result<Answer>> answers = client_->exchange_all(messages, deadline_after(options.timeout_ms));
  for (size_t j = 0; j < asked.size(); ++j) {
    const size_t i = asked[j];
    const PlanRequest request = plan_request(*graphs[i], target, options);
    const Result<PlanRef> got = accept(request, std::move(answers[j]));
    if (recorder_ || missing_) note(request, got);
    statuses[i] = got.status();
  }
  return statuses;
}
