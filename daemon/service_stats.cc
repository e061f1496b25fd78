// The facts and counters of the daemon: what Stats is answered with.
#include <unistd.h>

#include "daemon/catalog.h"
#include "daemon/service.h"

namespace quern {

namespace {

std::string compiler_text(const CompilerState& state) {
  switch (state.kind) {
    case CompilerState::Kind::starting:
      return "starting";
    case CompilerState::Kind::ready:
      return "ready";
    case CompilerState::Kind::missing:
      return state.reason;
  }
  return "?";
}

std::string gpu_text(const GpuState& gpu) {
  switch (gpu.kind) {
    case GpuState::Kind::starting:
      return "starting";
    case GpuState::Kind::ready:
      return gpu.device + ", " + gpu.target;
    case GpuState::Kind::missing:
      return "none: " + gpu.reason;
  }
  return "?";
}

}  // namespace

wire::StatsReply Service::stats() {
  wire::StatsReply stats;
  const auto count = [&](std::string name, uint64_t value) {
    stats.counters.push_back({std::move(name), value});
  };
  const auto count_jobs = [&](const std::string& kind, const Jobs::Counts& jobs) {
    count(kind + "_done", jobs.done);
    count(kind + "_failed", jobs.failed);
    count(kind + "_retried", jobs.retried);
    count(kind + "_queued", jobs.queued);
    count(kind + "_running", jobs.running);
  };
  const auto fact = [&](const char* name, std::string text) {
    stats.facts.push_back({name, std::move(text)});
  };
  uint64_t requests_open = 0;
  for (const auto& [id, client] : clients_) requests_open += client.open.size();
  count("uptime_ns", hooks_.now_ns() - started_ns_);
  count("requests", requests_);
  count("requests_open", requests_open);
  count("subscriptions", subscriptions_.size());
  count("client_bytes", budget_->used());
  const Planner::Counts plans = planner_.counts();
  count("hits", plans.hits);
  count("front_hits", plans.front_hits);
  count("misses", plans.misses);
  count("shared", plans.shared);
  count("errors", plans.errors);
  hit_latency_.report("hit", stats);
  miss_latency_.report("miss", stats);
  count_jobs("jobs", planner_.job_counts());
  count_jobs("searches", planner_.searches().counts());
  count("bettered", planner_.searches().published() + planner_.measures().published());
  count_jobs("measures", planner_.measures().counts());
  count("workers", hooks_.workers->count());
  count("worker_restarts", hooks_.workers->restarts());
  fact("software", kDaemonSoftware);
  fact("pid", std::to_string(getpid()));
  fact("socket", options_.socket);
  fact("cache_dir", options_.cache_dir);
  fact("log", options_.log_file.empty() ? "standard error" : options_.log_file);
  fact("toolchain", planner_.toolchain());
  fact("compiler", compiler_text(hooks_.workers->compiler()));
  fact("measure", options_.measuring.when == MeasureSettings::When::idle     ? "idle"
                  : options_.measuring.when == MeasureSettings::When::always ? "always"
                                                                             : "never");
  for (const GpuState& gpu : hooks_.workers->gpus())
    stats.facts.push_back({"gpu " + std::to_string(gpu.number), gpu_text(gpu)});
  if (hooks_.store)
    add_store_stats(*hooks_.store, stats);
  else
    fact("store", "none: " + hooks_.no_store.message());
  if (hooks_.fleet) hooks_.fleet->add_stats(stats);
  if (hooks_.add_stats) hooks_.add_stats(stats);
  return stats;
}

}  // namespace quern
