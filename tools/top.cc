// quern top: what the daemon is doing, again and again.
#include <unistd.h>

#include <map>
#include <thread>

#include "tools/output.h"
#include "tools/session.h"

namespace quern {

namespace {

using Counters = std::map<std::string, uint64_t>;

// What happened between two looks at the counters.
struct Interval {
  Counters before, now;
  double seconds = 0;

  uint64_t value(const std::string& name) const {
    const auto found = now.find(name);
    return found == now.end() ? 0 : found->second;
  }
  double rate(const std::string& name) const {
    const auto found = before.find(name);
    const uint64_t past = found == before.end() ? 0 : found->second;
    return value(name) >= past ? static_cast<double>(value(name) - past) / seconds : 0;
  }
};

constexpr const char* kRates[] = {"requests", "hits",      "misses",        "shared",
                                  "errors",   "jobs_done", "searches_done", "measures_done"};
constexpr const char* kLevels[] = {"clients",         "requests_open",    "workers",
                                   "jobs_running",    "jobs_queued",      "searches_running",
                                   "searches_queued", "measures_running", "measures_queued",
                                   "plans",           "store_bytes",      "client_bytes"};

std::string text_of(const Interval& interval) {
  Table rates({"", ">A SECOND", ">SINCE START"});
  for (const char* name : kRates) {
    char rate[32];
    std::snprintf(rate, sizeof rate, "%.1f", interval.rate(name));
    rates.add({name, rate, std::to_string(interval.value(name))});
  }
  std::vector<std::pair<std::string, std::string>> levels = {
      {"uptime", human_duration(interval.value("uptime_ns"))}};
  for (const std::string name : kLevels)
    levels.emplace_back(name, name.ends_with("_bytes") ? human_bytes(interval.value(name))
                                                       : std::to_string(interval.value(name)));
  return facts_text(levels) + "\n" + rates.text();
}

Json json_of(const Interval& interval) {
  Json rates = Json::object(), levels = Json::object();
  for (const char* name : kRates) rates[name] = interval.rate(name);
  for (const char* name : kLevels) levels[name] = interval.value(name);
  return {{"seconds", interval.seconds}, {"a_second", rates}, {"now", levels}};
}

int run_top(const Arguments& arguments) {
  const bool live = isatty(STDOUT_FILENO) && !arguments.json();
  Result<uint64_t> every =
      arguments.has("every") ? arguments.duration_ms("every", 3'600'000) : uint64_t{1000};
  if (!every) return fail(arguments, every.status());
  Result<int64_t> count = arguments.integer("count", live ? INT32_MAX : 1, 1, INT32_MAX);
  if (!count) return fail(arguments, count.status());
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  Interval interval;
  auto looked = std::chrono::steady_clock::now();
  for (int64_t look = 0; look <= *count; ++look) {
    if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(*every));
    Result<wire::StatsReply> stats = session->client->ask<wire::StatsReply>(
        wire::Stats{}, std::chrono::steady_clock::now() + std::chrono::seconds(10));
    if (!stats) return fail(arguments, stats.status());
    const auto now = std::chrono::steady_clock::now();
    interval.seconds = std::chrono::duration<double>(now - std::exchange(looked, now)).count();
    interval.before = std::exchange(interval.now, {});
    for (const wire::Counter& counter : stats->counters) interval.now[counter.name] = counter.value;
    if (look == 0) continue;
    if (live) std::fputs("\033[H\033[J", stdout);
    arguments.json() ? print_json(json_of(interval)) : print_text(text_of(interval));
    std::fflush(stdout);
  }
  return kExitOk;
}

}  // namespace

const Command Commands::kTopCommand = {
    "top",
    "",
    0,
    0,
    "what the daemon is doing, live",
    "Shows clients, jobs and the rates of requests, hits and misses, again each second until it is "
    "interrupted. Where\n"
    "standard output is no terminal it prints once, after one interval; --count says otherwise.\n",
    true,
    {{"every", 'e', "TIME", "between two looks: 500ms, 1s, 1m (1s)"},
     {"count", 'n', "N", "end after N looks"}},
    run_top,
};

}  // namespace quern
