// quern stats and stop: the daemon and its store as a whole; quern version.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <optional>
#include <thread>

#include "capi/wire/prometheus.h"
#include "tools/output.h"
#include "tools/session.h"
#include "tools/timings.h"

namespace quern {

namespace {

std::string counter_text(const wire::Counter& counter) {
  const auto ends_with = [&](std::string_view tail) {
    return std::string_view(counter.name).ends_with(tail);
  };
  if (ends_with("_ns")) return human_duration(counter.value);
  if (ends_with("_bytes")) return human_bytes(counter.value);
  return std::to_string(counter.value);
}

std::string quality_text(const ModelQuality& quality) {
  char text[160];
  std::snprintf(text, sizeof text,
                "rank correlation %.2f (mean), regret %.2f (geometric mean), of %zu graphs with %zu programs",
                quality.correlation, quality.regret, quality.graphs, quality.programs);
  return text;
}

// "p50 up to 50.0 us, p99 up to 200 us" of a histogram; "" when it is empty.
std::string percentiles_text(const wire::StatsReply& stats, const std::string& name) {
  uint64_t count = 0;
  for (const wire::Counter& counter : stats.counters)
    if (counter.name == name + "_us_count") count = counter.value;
  std::string text;
  for (const int percent : {50, 99}) {
    std::string limit = "longer";
    for (auto counter = stats.counters.rbegin(); counter != stats.counters.rend(); ++counter)
      if (const auto bucket = wire::bucket_of(counter->name);
          bucket && bucket->name == name && counter->value * 100 >= count * static_cast<uint64_t>(percent))
        limit = "up to " + human_duration(static_cast<uint64_t>(bucket->limit_us * 1000));
    text += (text.empty() ? "p" : ", p") + std::to_string(percent) + " " + limit;
  }
  return count ? text : "";
}

constexpr int64_t kJudged = 200;  // a request for each

int run_stats(const Arguments& arguments) {
  const Result<int64_t> judged = arguments.integer("model", kJudged, 0, INT32_MAX);
  if (!judged) return fail(arguments, judged.status());
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  Result<wire::StatsReply> stats = session->ask<wire::StatsReply>(wire::Stats{});
  if (!stats) return fail(arguments, stats.status());
  if (arguments.has("prometheus")) {
    if (arguments.json())
      return fail(arguments,
                  Status(ErrorCode::INVALID_ARGUMENT, "--prometheus and --json exclude each other"));
    print_text(wire::prometheus_text(*stats));
    return kExitOk;
  }
  Result<std::vector<ModelQuality>> model = model_quality(*session, static_cast<size_t>(*judged));
  // Without a store there is nothing to list, and statistics all the same.
  if (!model) model = std::vector<ModelQuality>();
  if (arguments.json()) {
    Json facts = Json::object(), counters = Json::object(), quality = Json::array();
    for (const ModelQuality& one : *model)
      quality.push_back({{"device", one.device},
                         {"graphs", one.graphs},
                         {"programs", one.programs},
                         {"rank_correlation", one.correlation},
                         {"regret", one.regret}});
    for (const wire::Fact& fact : stats->facts) facts[fact.name] = fact.text;
    for (const wire::Counter& counter : stats->counters) counters[counter.name] = counter.value;
    print_json({{"facts", facts}, {"counters", counters}, {"model", quality}});
    return kExitOk;
  }
  std::vector<std::pair<std::string, std::string>> lines;
  uint64_t hits = 0, answers = 0;
  for (const wire::Fact& fact : stats->facts) lines.emplace_back(fact.name, fact.text);
  for (const wire::Counter& counter : stats->counters) {
    if (wire::bucket_of(counter.name)) continue;
    lines.emplace_back(counter.name, counter_text(counter));
    if (counter.name == "hits") hits = counter.value;
    if (counter.name == "hits" || counter.name == "misses" || counter.name == "shared")
      answers += counter.value;
  }
  if (answers) lines.emplace_back("hit rate", std::to_string(hits * 100 / answers) + " %");
  for (const std::string name : {"hit", "miss"})
    if (const std::string text = percentiles_text(*stats, name); !text.empty())
      lines.emplace_back(name + " latency", text);
  for (const ModelQuality& one : *model) lines.emplace_back("model on " + one.device, quality_text(one));
  print_text(facts_text(lines));
  return kExitOk;
}

// ---- stop ----

// Whether nobody accepts connections any more.
bool is_gone(const Arguments& arguments) {
  ClientOptions options;
  options.daemon.socket = arguments.value("socket");
  options.daemon.start = false;
  options.connect_timeout = std::chrono::milliseconds(100);
  const Result<std::unique_ptr<Client>> client = Client::open(std::move(options));
  return !client && client.status().code() == ErrorCode::NO_DAEMON;
}

// Waits until the process has ended, at most until `deadline`: that nobody listens does not mean that its
// files are closed. A process of another user or of another machine cannot be watched.
bool has_ended(int process, TimePoint deadline) {
  if (process < 0) return true;
  pollfd ending = {process, POLLIN, 0};
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  const bool ended = poll(&ending, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX))) == 1;
  close(process);
  return ended;
}

int report_stopped(const Arguments& arguments, bool was_running) {
  if (arguments.json())
    print_json({{"stopped", was_running}});
  else
    print_text(was_running ? "the daemon has stopped\n" : "no daemon was running\n");
  return kExitOk;
}

int run_stop(const Arguments& arguments) {
  if (is_gone(arguments)) return report_stopped(arguments, false);
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  const int process = static_cast<int>(syscall(SYS_pidfd_open, session->client->welcome().pid, 0));
  Result<wire::Ack> ack = session->ask<wire::Ack>(wire::Shutdown{});
  if (!ack && ack.status().code() != ErrorCode::DISCONNECTED) return fail(arguments, ack.status());
  // A socket of systemd's accepts on, and a look would start the next daemon.
  while (process < 0 && !is_gone(arguments)) {
    if (std::chrono::steady_clock::now() > session->deadline)
      return fail(arguments, Status(ErrorCode::TIMEOUT,
                                    "the daemon is still finishing its work; it will stop by itself"));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (!has_ended(process, session->deadline))
    return fail(arguments,
                Status(ErrorCode::TIMEOUT, "the daemon is still finishing its work; it will stop by itself"));
  return report_stopped(arguments, true);
}

int run_version(const Arguments& arguments) {
  if (arguments.json())
    print_json({{"version", QUERN_PACKAGE_VERSION}, {"protocol", wire::kProtocolVersion}});
  else
    print_text("quern " QUERN_PACKAGE_VERSION ", protocol version " + std::to_string(wire::kProtocolVersion) +
               "\n");
  return kExitOk;
}

}  // namespace

const Command Commands::kStatsCommand = {
    "stats",
    "",
    0,
    0,
    "what the daemon has done, and what it holds",
    "Prints the daemon's facts and counters. Counters run from the daemon's start. For each GPU on which "
    "programs were measured it says how good the cost model\n"
    "is: the rank correlation (Spearman) of its times with the measured ones, and its regret, the time of\n"
    "its first choice over that of the best. Of a large cache that is a sample.\n",
    true,
    {{"model", 0, "N", "judge the cost model by at most N measured plans (200); 0: not at all"},
     {"prometheus", 0, nullptr, "print facts and counters as a Prometheus server reads them"}},
    run_stats,
};

const Command Commands::kStopCommand = {
    "stop",
    "",
    0,
    0,
    "stop the daemon",
    "Asks the daemon to finish what runs and to exit, and waits until it has. The next request starts\n"
    "it again.\n",
    true,
    {},
    run_stop,
};

const Command Commands::kVersionCommand = {
    "version",
    "",
    0,
    0,
    "the version of this program",
    "Prints the version of this program and of the protocol it speaks.\n",
    false,
    {},
    run_version,
};

}  // namespace quern
