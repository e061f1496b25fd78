// What is done on each request of messages.def.
#include "daemon/catalog.h"
#include "daemon/import.h"
#include "daemon/service.h"

namespace quern {

// ---- plans ----

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
  return if_open(open, [this](const std::shared_ptr<Open>& still, PlanAnswer answer) {
    reply_plan(still, std::move(answer));
  });
}

void Service::on(const std::shared_ptr<Open>& open, wire::Tune message) {
  open->key = message.key;
  const std::weak_ptr<Open> weak = open;
  const auto on_progress = [this, weak, wanted = message.progress != 0](const wire::JobProgress& progress) {
    if (wanted)
      send_progress(weak, {progress.tried, progress.programs, progress.best_ps, progress.baseline_ps});
  };
  planner_.tune({message.key, message.budget_ms, static_cast<int>(message.gpu) - 1}, caller(open),
                on_progress, result_replier<wire::TuneReply>(open));
  if (is_open(open)) set_deadline(open, message.timeout_ms);
}

void Service::on(const std::shared_ptr<Open>& open, wire::JobStatus message) {
  reply(open, planner_.status(message.key));
}

void Service::on(const std::shared_ptr<Open>& open, wire::Explain message) {
  planner_.explain(
      {std::move(message.graph), std::move(message.target), message.numerics, std::move(message.constraints)},
      caller(open), result_replier<wire::ExplainReply>(open));
}

void Service::on(const std::shared_ptr<Open>& open, wire::Subscribe message) {
  const std::shared_ptr<Account>& account = clients_.at(open->client).asker.account;
  if (Status status = subscriptions_.add(message.key, open->client, account, options_.max_subscriptions);
      !status.ok())
    return reply_error(open, status);
  const wire::JobStatusReply status = planner_.status(message.key);
  const bool under_way = status.state == wire::JobState::queued || status.state == wire::JobState::running;
  // A job may have ended before anybody could hear of it.
  reply(open, wire::Subscribed{status.generation, status.generation == 0 && !under_way});
}

void Service::on(const std::shared_ptr<Open>& open, wire::Unsubscribe message) {
  subscriptions_.remove(message.key, open->client);
  reply(open, wire::Ack{});
}

// ---- the store ----

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
      if_open(open, [this, keys](const std::shared_ptr<Open>& still) {
        keys->ok() ? remove(still, keys->value()) : reply_error(still, keys->status());
      }));
}

void Service::on(const std::shared_ptr<Open>& open, wire::Import message) {
  if (!hooks_.store) return reply_error(open, hooks_.no_store);
  const auto put = std::make_shared<Result<PlanPut>>(PlanPut());
  const auto stored = if_open(open, [this](const auto& still, const Result<PutOutcome>& outcome) {
    if (!outcome.ok()) return reply_error(still, outcome.status());
    reply(still, wire::Imported{outcome.value().generation, outcome.value().tier, outcome.value().published});
  });
  aside_.ask(
      caller(open), [put, message = std::move(message)] { *put = put_of_import(message); },
      if_open(open, [this, put, stored](const auto& still) {
        put->ok() ? planner_.import(std::move(put->value()), stored) : reply_error(still, put->status());
      }));
}

void Service::remove(const std::shared_ptr<Open>& open, const std::vector<Hash128>& keys) {
  for (const Hash128& key : keys) planner_.forgive(key);
  remove_plans(*hooks_.store, keys, hooks_.post, count_replier<wire::Removed>(open));
}

void Service::on(const std::shared_ptr<Open>& open, wire::Pin message) {
  if (!hooks_.store) return reply_error(open, hooks_.no_store);
  pin_plans(*hooks_.store, message.keys, !message.unpin, hooks_.post, count_replier<wire::Pinned>(open));
}

void Service::on(const std::shared_ptr<Open>& open, wire::Verify message) {
  if (!hooks_.store) return reply_error(open, hooks_.no_store);
  if (verifying_) return reply_error(open, Status(ErrorCode::BUSY, "a verification is under way already"));
  verifying_ = true;
  if (verify_.joinable()) verify_.join();
  const auto answer = if_open(open, [this](const auto& still, const Result<VerifyReport>& report) {
    report.ok() ? reply(still, verify_reply(report.value())) : reply_error(still, report.status());
  });
  verify_ = std::thread([this, answer, weak = std::weak_ptr(open), progress = message.progress != 0] {
    auto report = hooks_.store->verify_all([&](uint64_t done, uint64_t total) {
      if (progress) hooks_.post([=, this] { send_progress(weak, {done, total, 0, 0}); });
    });
    hooks_.post([this, answer, report = std::move(report)] {
      verifying_ = false;
      answer(report);
    });
  });
}

void Service::send_progress(const std::weak_ptr<Open>& request, const wire::Progress& progress) {
  const auto still = request.lock();
  if (still && is_open(still)) hooks_.send(still->client, wire::encode(still->request, progress));
}

// ---- the daemon ----

void Service::on(const std::shared_ptr<Open>& open, wire::Stats message) {
  if (!message.write || !hooks_.store) return reply(open, stats());
  try_write(*hooks_.store, hooks_.post, if_open(open, [this](const auto& still, std::string how) {
    wire::StatsReply now = stats();
    now.facts.push_back({"store_write", std::move(how)});
    reply(still, now);
  }));
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
