// The C functions about clients: opening them, getting plans, statistics.
#include <memory>
#include <mutex>

#include "capi/api.h"
#include "capi/client_handle.h"
#include "core/base/target.h"

struct quern_stats {
  quern::wire::StatsReply reply;
};

namespace quern::api {

namespace {

Result<const char*> device_target(int ordinal) {
  Result<std::shared_ptr<const Driver>> driver = process_driver();
  if (!driver) return driver.status();
  Result<DeviceInfo> device = (*driver)->device(ordinal);
  if (!device) return device.status();
  Result<const Target*> target = target_for_device(device->major, device->minor);
  if (!target) return target.status();
  return (*target)->name;
}

Result<std::string_view> target_or_default(const char* target) {
  if (target) return std::string_view(target);
  static std::atomic<const char*> of_device_0{nullptr};
  if (const char* known = of_device_0.load()) return std::string_view(known);
  Result<const char*> found = device_target(0);
  if (!found)
    return found.status().with_context(
        "no target such as sm_90a was given, and there is no GPU to take it from");
  of_device_0 = *found;
  return std::string_view(*found);
}

Status read_get_options(const quern_get_options* given, quern_get_options& options) {
  if (Status status = read_options(given, options); !status.ok()) return status;
  if (options.flags & ~uint32_t{QUERN_NO_WAIT | QUERN_NO_COMPILE | QUERN_REFRESH | QUERN_NO_REQUEST})
    return invalid_argument("unknown flags " + std::to_string(options.flags));
  if ((options.flags & QUERN_REFRESH) && (options.flags & QUERN_NO_REQUEST))
    return invalid_argument("QUERN_REFRESH asks the daemon, which QUERN_NO_REQUEST forbids");
  if (options.numerics & ~uint32_t{QUERN_ALLOW_TF32})
    return invalid_argument("unknown numerics " + std::to_string(options.numerics));
  if (options.priority > 255)
    return invalid_argument("priority " + std::to_string(options.priority) + " is above 255");
  if (options.min_tier < 0 || options.min_tier > QUERN_MEASURED)
    return invalid_argument("there is no tier " + std::to_string(options.min_tier));
  return {};
}

// The first failure counts, then the first PENDING.
Status summary(const std::vector<Status>& statuses) {
  Status result;
  for (const Status& status : statuses) {
    if (status.ok()) continue;
    if (status.code() != ErrorCode::PENDING) return status;
    result = status;
  }
  return result;
}

}  // namespace

}  // namespace quern::api

using namespace quern;
using namespace quern::api;

quern_status quern_open(const quern_open_options* given, quern_client** client, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(client, "client"); !status.ok()) return status;
    *client = nullptr;
    quern_open_options options;
    if (Status status = read_options(given, options); !status.ok()) return status;
    if (options.flags & ~uint32_t{QUERN_NO_START})
      return invalid_argument("unknown flags " + std::to_string(options.flags));
    Result<quern_client*> opened = quern_client::open(options);
    if (opened) *client = *opened;
    return opened.status();
  });
}

void quern_close(quern_client* client) {
  if (!client) return;
  if (client->client().check_process().ok())
    delete client;
  else
    client->client().leave_to_parent();
}

void quern_cancel(quern_client* client) {
  if (client) client->client().cancel();
}

int quern_fd(const quern_client* client) {
  return client && client->client().check_process().ok() ? client->client().fd() : -1;
}

quern_status quern_process(quern_client* client, uint64_t* better, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (better) *better = 0;
    if (Status status = require(client, "client"); !status.ok()) return status;
    if (Status status = client->client().process(); !status.ok()) return status;
    // Left for later when nobody is there to hear it.
    if (better) *better = client->take_better();
    return {};
  });
}

quern_status quern_get(quern_client* client, const quern_graph* graph, const char* target,
                       const quern_get_options* given, quern_plan** plan, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(plan, "plan"); !status.ok()) return status;
    *plan = nullptr;
    if (Status status = require(client, "client"); !status.ok()) return status;
    if (Status status = require(graph, "graph"); !status.ok()) return status;
    quern_get_options options;
    if (Status status = read_get_options(given, options); !status.ok()) return status;
    const Result<std::string_view> name = target_or_default(target);
    if (!name) return name.status();
    Result<PlanRef> got = client->get(*graph, *name, options);
    if (got) *plan = got->take();
    return got.status();
  });
}

quern_status quern_prewarm(quern_client* client, const quern_graph* const* graphs, size_t count,
                           const char* target, const quern_get_options* given, quern_status* statuses,
                           quern_error* error) {
  bool asked = false;
  const quern_status result = guarded(error, [&]() -> Status {
    if (Status status = require(client, "client"); !status.ok()) return status;
    if (Status status = client->client().check_process(); !status.ok()) return status;
    if (count > 0)
      if (Status status = require(graphs, "graphs"); !status.ok()) return status;
    std::vector<const quern_graph*> list(graphs, graphs + count);
    for (const quern_graph* graph : list)
      if (Status status = require(graph, "each of the graphs"); !status.ok()) return status;
    quern_get_options options;
    if (Status status = read_get_options(given, options); !status.ok()) return status;
    const Result<std::string_view> name = target_or_default(target);
    if (!name) return name.status();
    const std::vector<Status> results = client->prewarm(list, *name, options);
    if (statuses)
      std::transform(results.begin(), results.end(), statuses,
                     [](const Status& status) { return report(status, nullptr); });
    asked = true;
    return summary(results);
  });
  if (statuses && !asked) std::fill_n(statuses, count, result);
  return result;
}

int quern_plan_outdated(const quern_client* client, const quern_plan* plan) {
  if (!client || !plan || !client->client().check_process().ok()) return 0;
  return client->table().outdated(plan->reply().key, plan->reply().generation);
}

quern_status quern_device_target(int device, const char** target, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(target, "target"); !status.ok()) return status;
    *target = nullptr;
    Result<const char*> found = device_target(device);
    if (found) *target = *found;
    return found.status();
  });
}

quern_status quern_stats_get(quern_client* client, uint32_t timeout_ms, quern_stats** stats,
                             quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(stats, "stats"); !status.ok()) return status;
    *stats = nullptr;
    if (Status status = require(client, "client"); !status.ok()) return status;
    Result<wire::StatsReply> reply =
        client->client().ask<wire::StatsReply>(wire::Stats{}, deadline_after(timeout_ms));
    if (reply) *stats = new quern_stats{std::move(*reply)};
    return reply.status();
  });
}

void quern_stats_free(quern_stats* stats) { delete stats; }

size_t quern_stats_count(const quern_stats* stats) {
  return stats ? stats->reply.counters.size() + stats->reply.facts.size() : 0;
}

quern_status quern_stats_at(const quern_stats* stats, size_t index, quern_stat* stat, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(stats, "stats"); !status.ok()) return status;
    if (index >= quern_stats_count(stats))
      return Status(ErrorCode::NOT_FOUND,
                    "statistic " + std::to_string(index) + " of " + std::to_string(quern_stats_count(stats)));
    const auto& [counters, facts] = stats->reply;
    quern_stat filled{};
    if (index < counters.size()) {
      filled.name = counters[index].name.c_str();
      filled.value = counters[index].value;
    } else {
      filled.name = facts[index - counters.size()].name.c_str();
      filled.text = facts[index - counters.size()].text.c_str();
    }
    return write_struct(filled, stat, "stat");
  });
}
