// fleet_bench [GRAPHS [SEARCHED]]: what a fleet of four saves, with the real compiler, as tables for
// docs/results/fleet.md; so many of the graphs are searched for better plans, too.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/e2e/fleet.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;
using Nodes = std::vector<std::unique_ptr<TestDaemon>>;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

wire::Get rms_norm_linear(int number) {
  wire::Get get;
  get.graph = "graph bench\nin x: f16[" + std::to_string(number + 1) +
              ", 64]\nin w: f16[64, 32] const\ny = rms_norm(x, axis=-1, eps=1e-5)\nz = matmul(y, w)\nout z\n";
  get.target = "sm_90a";
  return get;
}

std::unique_ptr<TestDaemon> start_node(const RedisServer& server, bool fleet, bool searches = false) {
  auto node = fleet_node(server.address(), server.dir);
  if (searches) node->arguments.insert(node->arguments.end(), {"--searchers=1", "--request-seconds=3600"});
  if (!fleet) node->arguments.erase(node->arguments.begin(), node->arguments.begin() + 3);
  node->worker = REAL_WORKER_BUILT;
  node->start();
  TestClient client(node->socket());
  if (!eventually([&] { return client.fact("compiler") == "ready"; })) fail_test("no compiler");
  if (fleet && !eventually([&] { return client.counter("fleet_up") == 1; })) fail_test("no server");
  return node;
}

Nodes start_nodes(const RedisServer& server, bool fleet, bool searches = false) {
  Nodes nodes;
  for (int i = 0; i < 4; ++i) nodes.push_back(start_node(server, fleet, searches));
  return nodes;
}

uint64_t done(const TestDaemon& node, const char* jobs) {
  return TestClient(node.socket()).counter(std::string(jobs) + "_done");
}

// The same graphs on all nodes at once; `meanwhile` runs here.
double ask_everywhere(const Nodes& nodes, int first, int count, const std::function<void()>& meanwhile = {},
                      const std::function<wire::Get(int)>& get = rms_norm_linear) {
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (const auto& node : nodes)
    threads.emplace_back([&] {
      TestClient client(node->socket());
      ask_all(client, first, count, get);
    });
  if (meanwhile) meanwhile();
  for (std::thread& thread : threads) thread.join();
  return seconds_since(begin);
}

void row(const char* what, const Nodes& nodes, double seconds, const char* jobs = "jobs") {
  std::string each;
  uint64_t sum = 0;
  for (const auto& node : nodes) {
    const uint64_t made = done(*node, jobs);
    sum += made;
    each += (each.empty() ? "" : " + ") + std::to_string(made);
  }
  std::printf("| %s | %lu (%s) | %.1f |\n", what, static_cast<unsigned long>(sum), each.c_str(), seconds);
}

void settle(const TestDaemon& node) {
  TestClient client(node.socket());
  if (!eventually([&] { return client.counter("fleet_queued") == 0; })) fail_test("not sent");
}

void fetch_into_an_empty_node(const RedisServer& server, int graphs) {
  const auto node = start_node(server, true);
  TestClient client(node->socket());
  const auto begin = Clock::now();
  size_t bytes = 0;
  for (const wire::PlanReply& plan : ask_all(client, 0, graphs, rms_norm_linear)) bytes += plan.plan.size();
  std::printf("| an empty node asks for them, %zu KiB each | %lu | %.2f |\n",
              bytes / 1024 / static_cast<size_t>(graphs), static_cast<unsigned long>(done(*node, "jobs")),
              seconds_since(begin));
}

void hits_while_the_server_dies(RedisServer& server, const Nodes& nodes, int first, int count) {
  TestClient client(nodes[0]->socket());
  client.ask<wire::PlanReply>(test_get(0));
  const double before = p99_of_hits_ms(client, 3000);
  double compiling = 0, dead = 0, back = 0;
  ask_everywhere(nodes, first, count, [&] {
    compiling = p99_of_hits_ms(client, 2000);
    server.kill_hard();
    dead = p99_of_hits_ms(client, 2000);
    server.start();
    back = p99_of_hits_ms(client, 2000);
  });
  std::printf(
      "\n| p99 of hits, ms | idle | all nodes compile | and the server is killed | and is started again | "
      "idle |\n"
      "|---|---|---|---|---|---|\n| | %.2f | %.2f | %.2f | %.2f | %.2f |\n",
      before, compiling, dead, back, p99_of_hits_ms(client, 3000));
}

// Until every node has what the search for each of them has found.
void search_everywhere(const RedisServer& server, int graphs) {
  const auto better = [](int number) {
    wire::Get get = rms_norm_linear(2000 + number);
    get.tier = static_cast<uint8_t>(Tier::modelled);
    return get;
  };
  std::printf("\n| %d graphs, and the searches for better plans | searches | seconds |\n|---|---|---|\n",
              graphs);
  for (const bool fleet : {false, true}) {
    const Nodes nodes = start_nodes(server, fleet, true);
    double seconds = 0;
    for (int i = 0; i < graphs; i += 2)
      seconds += ask_everywhere(nodes, i, 2, {}, better);  // a client waits 20 s
    row(fleet ? "on four nodes at once, a fleet" : "on four nodes at once, no fleet", nodes, seconds,
        "searches");
  }
}

int bench(int graphs, int searched) {
  RedisServer server;
  server.start();
  std::printf("| %d graphs | compiles | seconds |\n|---|---|---|\n", graphs);
  {
    const Nodes alone = start_nodes(server, false);
    row("a tenth of them, asked on four nodes at once, no fleet", alone,
        ask_everywhere(alone, 0, graphs / 10));
  }
  const Nodes nodes = start_nodes(server, true);
  row("all, asked on four nodes at once, a fleet", nodes, ask_everywhere(nodes, 0, graphs));
  for (const auto& node : nodes) settle(*node);
  fetch_into_an_empty_node(server, graphs);
  hits_while_the_server_dies(server, nodes, 100000, graphs / 2);
  search_everywhere(server, searched);
  return 0;
}

}  // namespace

}  // namespace quern

int main(int argc, char** argv) {
  return quern::bench(argc > 1 ? std::atoi(argv[1]) : 1000, argc > 2 ? std::atoi(argv[2]) : 24);
}
