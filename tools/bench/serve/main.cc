// Compares how the daemon serves hits with how a Redis server serves the same bytes: interleaved, on the same
// cores, over Unix sockets. Prints a Markdown table for each part.
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "capi/quern.h"
#include "tools/bench/serve/fill.h"
#include "tools/bench/serve/load.h"
#include "tools/bench/serve/server.h"

namespace quern::serve {

namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "usage: serve [--quernd PATH] [--redis PATH] [--parts round,in-process,start,puts] [--seconds S] "
    "[--rounds N]\n"
    "             [--kib 8,32,128] [--clients 1,16,200] [--entries N] [--puts N]\n"
    "  --quernd PATH    default: quernd in $PATH\n"
    "  --redis PATH     default: redis-server in $PATH\n"
    "  --parts LIST     what is measured; default all but puts, which takes minutes\n"
    "  --seconds S      of one round of one server; default 0.5\n"
    "  --rounds N       of each server for each row, in iterations; default 5\n"
    "  --kib LIST       sizes of plans\n"
    "  --clients LIST   how many ask at once\n"
    "  --entries N      of the cold start; default 100000\n"
    "  --puts N         then the rows once more; default 1000000\n";

constexpr uint64_t kPlans = 64;   // that are asked for in iterations
constexpr size_t kMostCores = 4;  // of the servers, and of those who ask

struct Settings {
  std::string quernd = "quernd", redis = "redis-server", parts = "round,in-process,start", dir;
  double seconds = 0.5;
  int rounds = 5;
  std::vector<size_t> kib = {8, 32, 128}, clients = {1, 16, 200};
  uint64_t entries = 100000, puts = 1000000;
  std::vector<int> server_cores, own_cores;

  bool has(const char* part) const {
    return ("," + parts + ",").find("," + std::string(part) + ",") != std::string::npos;
  }
};

std::unique_ptr<Server> start_quern(const Settings& settings, const std::string& cache) {
  const std::string socket = settings.dir + "/quern.sock";
  return std::make_unique<Server>(
      std::vector<std::string>{settings.quernd, "--foreground", "--socket=" + socket, "--cache-dir=" + cache,
                               "--worker=/nowhere/quern-worker", "--searchers=0", "--measure=never",
                               "--log-file=" + settings.dir + "/log"},
      socket, settings.server_cores);
}

std::unique_ptr<Server> start_redis(const Settings& settings) {
  const std::string socket = settings.dir + "/redis.sock";
  return std::make_unique<Server>(
      std::vector<std::string>{settings.redis, "--port", "0", "--unixsocket", socket, "--save", "",
                               "--appendonly", "no", "--dir", settings.dir},
      socket, settings.server_cores);
}

// One round of one server.
struct Round {
  Measured load;
  double cpu_us = 0;  // of the server, an answer
};

Round run_round(const Load& load, const Server& server) {
  const double before = server.cpu_us();
  Round round{run_load(load), 0};
  round.cpu_us = (server.cpu_us() - before) / round.load.answers;
  return round;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Both medians, and the median of the ratios of rounds that ran one right after the other.
void compare(const std::vector<Round> (&rounds)[2], double (*field)(const Round&), const char* format) {
  std::vector<double> both[2], ratios;
  for (size_t i = 0; i < rounds[0].size(); ++i) {
    for (int server = 0; server < 2; ++server) both[server].push_back(field(rounds[server][i]));
    ratios.push_back(both[0].back() / both[1].back());
  }
  std::printf(format, median(both[0]));
  std::printf(format, median(both[1]));
  std::printf(" %.2f |", median(ratios));
}

void row(const Settings& settings, const Server& quern, const Server& redis, size_t kib, int clients,
         uint64_t first) {
  const Server* const servers[2] = {&quern, &redis};
  Load loads[2];
  loads[0].protocol = Protocol::quern;
  loads[1].protocol = Protocol::redis;
  for (int i = 0; i < 2; ++i) {
    loads[i].socket = servers[i]->socket();
    loads[i].clients = clients;
    loads[i].seconds = settings.seconds;
    loads[i].least_bytes = kib << 10;
  }
  for (uint64_t number = first; number < first + kPlans; ++number) {
    loads[0].requests.push_back(quern_request(number));
    loads[1].requests.push_back(redis_request(number));
  }
  std::vector<Round> rounds[2];
  for (int round = 0; round < settings.rounds; ++round)
    for (int turn = 0; turn < 2; ++turn) {
      const int i = (round + turn) % 2;
      rounds[i].push_back(run_round(loads[i], *servers[i]));
    }
  std::printf("| %zu | %d |", kib, clients);
  compare(
      rounds, [](const Round& round) { return round.load.p50_us; }, " %.1f |");
  compare(
      rounds, [](const Round& round) { return round.load.p99_us; }, " %.0f |");
  compare(
      rounds, [](const Round& round) { return round.load.per_second; }, " %.0f |");
  compare(
      rounds, [](const Round& round) { return round.cpu_us; }, " %.1f |");
  std::printf("\n");
  std::fflush(stdout);
}

// Plans of each size have numbers of their own.
uint64_t first_of(size_t size) { return 10'000'000 + size * 1000; }

void fill_or_die(const Fill& what) {
  if (const auto filled = fill(what); !filled.ok()) die(filled.status().message());
}

void round_trips(const Settings& settings, const std::string& cache, const char* title) {
  std::printf(
      "\n%s\n\n| KiB | clients | p50 us | Redis | ratio | p99 us | Redis | ratio | hits/s | Redis | ratio | "
      "CPU us a hit | Redis | ratio |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      title);
  for (const size_t size : settings.kib) fill_or_die({cache, first_of(size), kPlans, size << 10});
  const auto quern = start_quern(settings, cache);
  const auto redis = start_redis(settings);
  for (const size_t size : settings.kib)
    for (uint64_t number = first_of(size); number < first_of(size) + kPlans; ++number)
      redis_set(redis->socket(), number, plan_bytes(number, size << 10));
  for (const size_t size : settings.kib)
    for (const size_t clients : settings.clients)
      row(settings, *quern, *redis, size, static_cast<int>(clients), first_of(size));
  const Memory q = quern->memory(), r = redis->memory();
  std::printf("\nResident: quernd %.1f MiB, %.1f beyond mapped pages; Redis %.1f MiB.\n", q.resident_mib,
              q.beyond_maps_mib, r.resident_mib);
}

void in_process(const Settings& settings, const std::string& cache) {
  const auto quern = start_quern(settings, cache);
  quern_open_options open{};
  open.struct_size = sizeof open;
  const std::string socket = quern->socket();
  open.socket = socket.c_str();
  quern_error error;
  quern_client* client = nullptr;
  quern_graph* graph = nullptr;
  const std::string text = graph_text(first_of(32));
  if (quern_open(&open, &client, &error) != QUERN_OK ||
      quern_graph_parse(text.data(), text.size(), &graph, &error) != QUERN_OK)
    die(error.message);
  const auto get = [&](uint32_t flags) {
    quern_get_options options{};
    options.struct_size = sizeof options;
    options.flags = flags;
    quern_plan* plan = nullptr;
    if (quern_get(client, graph, kTarget, &options, &plan, &error) != QUERN_OK) die(error.message);
    quern_plan_release(plan);
  };
  const auto time_us = [&](uint32_t flags, int count) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) get(flags);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
           count;
  };
  get(0);
  time_us(QUERN_REFRESH, 1000);
  const double daemon = time_us(QUERN_REFRESH, 5000), table = time_us(0, 1000000);
  std::printf(
      "\nThrough libquern, a plan of 32 KiB: %.1f us from the daemon, %.3f us from the table of the "
      "process.\n",
      daemon, table);
  quern_graph_free(graph);
  quern_close(client);
}

void cold_starts(const Settings& settings) {
  for (const uint64_t entries : {uint64_t{0}, settings.entries}) {
    const std::string cache = settings.dir + "/start-" + std::to_string(entries);
    fs::create_directory(cache);
    fs::permissions(cache, fs::perms::owner_all);
    if (entries > 0) fill_or_die({cache, 0, entries, 4096});
    std::vector<double> took;
    Memory memory;
    for (int round = 0; round < settings.rounds; ++round) {
      const auto quern = start_quern(settings, cache);
      took.push_back(quern->start_ms());
      memory = quern->memory();
    }
    std::sort(took.begin(), took.end());
    std::printf(
        "\nStart with %llu entries: %.1f ms until it accepts; resident %.1f MiB, %.1f beyond mapped pages.\n",
        static_cast<unsigned long long>(entries), took[took.size() / 2], memory.resident_mib,
        memory.beyond_maps_mib);
    fs::remove_all(cache);
  }
}

void after_puts(const Settings& settings) {
  const std::string cache = settings.dir + "/puts";
  const auto evicted = fill({cache, 0, settings.puts, 2048, uint64_t{256} << 20});
  if (!evicted.ok()) die(evicted.status().message());
  const std::string title =
      "After " + std::to_string(settings.puts) + " puts and " + std::to_string(*evicted) + " evictions:";
  round_trips(settings, cache, title.c_str());
}

std::vector<size_t> numbers(const char* name, const char* list) {
  std::vector<size_t> found;
  for (char* end = nullptr; *list; list = *end ? end + 1 : end) {
    found.push_back(std::strtoull(list, &end, 10));
    if (end == list || found.back() == 0)
      die(std::string("--") + name + " takes numbers with commas between them");
  }
  return found;
}

int run(int argc, char** argv) {
  Settings settings;
  const option options[] = {
      {"quernd", required_argument, nullptr, 'q'},  {"redis", required_argument, nullptr, 'r'},
      {"parts", required_argument, nullptr, 'p'},   {"seconds", required_argument, nullptr, 's'},
      {"rounds", required_argument, nullptr, 'n'},  {"kib", required_argument, nullptr, 'k'},
      {"clients", required_argument, nullptr, 'c'}, {"entries", required_argument, nullptr, 'e'},
      {"puts", required_argument, nullptr, 'u'},    {nullptr, 0, nullptr, 0}};
  for (int option; (option = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    if (option == 'q')
      settings.quernd = fs::absolute(optarg);
    else if (option == 'r')
      settings.redis = optarg;
    else if (option == 'p')
      settings.parts = optarg;
    else if (option == 's')
      settings.seconds = std::atof(optarg);
    else if (option == 'n')
      settings.rounds = std::max(std::atoi(optarg), 1);
    else if (option == 'k')
      settings.kib = numbers("kib", optarg);
    else if (option == 'c')
      settings.clients = numbers("clients", optarg);
    else if (option == 'e')
      settings.entries = std::strtoull(optarg, nullptr, 10);
    else if (option == 'u')
      settings.puts = std::strtoull(optarg, nullptr, 10);
    else
      return std::fputs(kUsage, stderr), 2;
  }
  char name[] = "/tmp/quern-serve-XXXXXX";
  if (!mkdtemp(name)) die("no directory in /tmp");
  settings.dir = name;
  // One half asks, the other serves; no more than neighbours, which share caches.
  std::vector<int> cores = allowed_cores();
  cores.resize(std::min(cores.size(), 2 * kMostCores));
  for (size_t i = 0; i < cores.size() && cores.size() > 1; ++i)
    (i < cores.size() / 2 ? settings.server_cores : settings.own_cores).push_back(cores[i]);
  run_on(settings.own_cores);
  if (settings.has("round")) round_trips(settings, settings.dir + "/cache", "Round trips:");
  if (settings.has("in-process")) {
    fill_or_die({settings.dir + "/cache", first_of(32), kPlans, 32 << 10});  // rows may be of other sizes
    in_process(settings, settings.dir + "/cache");
  }
  if (settings.has("start")) cold_starts(settings);
  if (settings.has("puts")) after_puts(settings);
  fs::remove_all(settings.dir);
  return 0;
}

}  // namespace

}  // namespace quern::serve

int main(int argc, char** argv) { return quern::serve::run(argc, argv); }
