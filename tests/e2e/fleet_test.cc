// Daemons that share a Redis or Valkey server: one compile for all, and nothing that the server does or
// suffers hurts anybody.
#include "tests/e2e/fleet.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>

#include "core/base/hash.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Fleet4 {
  RedisServer server;
  std::vector<std::unique_ptr<TestDaemon>> nodes;

  explicit Fleet4(const char* delay_ms = "5") {
    server.start();
    for (int i = 0; i < 4; ++i) {
      nodes.push_back(fleet_node(server.address(), server.dir));
      nodes.back()->tell_worker("delay_ms", delay_ms);
      nodes.back()->start();
      wait_up(*nodes.back());
    }
  }
  size_t compiles() const {
    size_t sum = 0;
    for (const auto& node : nodes) sum += node->compiles();
    return sum;
  }
  // The same graphs on all nodes at once; `meanwhile` runs here.
  void ask(int first, int count, const std::function<void()>& meanwhile = {}) {
    std::vector<std::vector<wire::PlanReply>> answers(nodes.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < nodes.size(); ++i)
      threads.emplace_back([&, i] {
        TestClient client(nodes[i]->socket());
        answers[i] = ask_all(client, first, count);
      });
    if (meanwhile) meanwhile();
    for (std::thread& thread : threads) thread.join();
    std::set<Hash128> plans;
    for (size_t graph = 0; graph < static_cast<size_t>(count); ++graph) {
      plans.insert(hash128(answers[0][graph].plan));
      for (const auto& node : answers) assert_true(node[graph].plan == answers[0][graph].plan);
    }
    assert_int_equal(plans.size(), count);  // nobody got another graph's plan
  }
};

size_t lines_with(const std::string& log, const std::string& what) {
  size_t count = 0;
  for (size_t at = log.find(what); at != std::string::npos; at = log.find(what, at + 1)) ++count;
  return count;
}

void graphs_asked_on_four_nodes_at_once_are_compiled_once(void**) {
  constexpr int kGraphs = 100;
  Fleet4 fleet("20");  // long enough for a node that begins late to find work
  fleet.ask(1, kGraphs);
  assert_int_equal(fleet.compiles(), kGraphs);
  for (const auto& node : fleet.nodes) assert_true(node->compiles() > 0);  // they share the work
}

void an_empty_node_gets_1000_plans_within_3_seconds(void**) {
  constexpr int kGraphs = 1000;
  RedisServer server;
  server.start();
  const auto maker = fleet_node(server.address(), server.dir),
             empty = fleet_node(server.address(), server.dir);
  maker->start();
  wait_up(*maker);
  TestClient client(maker->socket());
  const auto made = ask_all(client, 0, kGraphs);
  assert_true(settled(*maker));
  empty->start();
  wait_up(*empty);
  TestClient other(empty->socket());
  const auto begin = Clock::now();
  const auto found = ask_all(other, 0, kGraphs);
  const double ms = ms_since(begin);
  std::printf("an empty node got %d plans in %.0f ms\n", kGraphs, ms);
  assert_int_equal(empty->compiles(), 0);
  for (size_t i = 0; i < kGraphs; ++i) assert_true(found[i].plan == made[i].plan);
  assert_int_equal(other.counter("fleet_hits"), kGraphs);
  assert_true(ms < 3000);
  // They are this node's own now.
  server.kill_hard();
  assert_int_equal(other.ask<wire::PlanReply>(test_get(7)).origin, wire::Origin::hit);
}

void a_server_that_is_killed_and_restarted_delays_no_hit(void**) {
  Fleet4 fleet("10");
  TestClient client(fleet.nodes[0]->socket());
  client.ask<wire::PlanReply>(test_get(0));
  const double before = p99_of_hits_ms(client, 500);
  double during = 0;
  fleet.ask(1, 150, [&] {
    usleep(150000);
    fleet.server.kill_hard();
    during = p99_of_hits_ms(client, 1000);
    fleet.server.start();
  });
  for (const auto& node : fleet.nodes) assert_true(settled(*node));
  const double after = p99_of_hits_ms(client, 500);
  std::printf(
      "p99 of hits: %.2f ms before, %.2f ms while the server is down and all nodes compile, %.2f ms after\n",
      before, during, after);
  // A millisecond or two where processors are free; what would wait for the server takes 250.
  assert_true(during < 100 && after < 100);
  fleet.ask(1, 150);  // all of it is where it was made
  const size_t compiled = fleet.compiles();
  fleet.ask(1000, 50);
  assert_int_equal(fleet.compiles() - compiled, 50);  // and one compiles for all again
}

void a_lease_ends_with_its_node(void**) {
  RedisServer server;
  server.start();
  const auto first = fleet_node(server.address(), server.dir),
             second = fleet_node(server.address(), server.dir);
  first->tell_worker("hangs", "9");
  for (const auto& node : {first.get(), second.get()}) {
    node->start();
    wait_up(*node);
  }
  TestClient dies(first->socket()), waits(second->socket());
  dies.send(test_get(1));
  assert_true(eventually([&] { return first->compiles() == 1; }));
  waits.send(test_get(1));
  usleep(300000);
  assert_int_equal(second->compiles(), 0);
  first->kill_hard();
  const auto begin = Clock::now();
  waits.receive_as<wire::PlanReply>();
  std::printf("%.1f s after its node was killed, another has the lease\n", ms_since(begin) / 1000);
  assert_int_equal(second->compiles(), 1);
}

void whatever_is_planted_is_a_miss(void**) {
  RedisServer server;
  server.start();
  const auto node = fleet_node(server.address(), server.dir),
             stranger = fleet_node(server.address(), server.dir, "other");
  node->start();
  stranger->start();
  wait_up(*node);
  wait_up(*stranger);
  TestClient client(node->socket()), other(stranger->socket());
  const auto made = ask_all(other, 0, 8);  // signed by a key that `node` does not trust
  assert_true(settled(*stranger));
  const auto name = [&](size_t graph) { return fleet_name(made[graph].key); };
  std::string changed = server.ask({"GET", name(1)});
  changed[changed.size() / 2] ^= 1;
  server.ask({"SET", name(1), changed});
  server.ask({"SET", name(2), "garbage"});
  server.ask({"SET", name(3), std::string(9 << 20, 'x')});
  server.ask({"DEL", name(4)});
  server.ask({"LPUSH", name(4), "a list"});
  server.ask({"SET", name(5), changed.substr(0, 100)});
  const auto plans = ask_all(client, 0, 6);
  for (size_t i = 0; i < plans.size(); ++i) assert_true(plans[i].plan == made[i].plan);
  assert_int_equal(node->compiles(), 6);
  assert_int_equal(client.counter("fleet_hits"), 0);
  assert_int_equal(lines_with(node->log(), "event=fleet_refused_PERMISSION"), 1);
  assert_int_equal(lines_with(node->log(), "event=fleet_refused_CORRUPT"), 1);
  assert_int_equal(lines_with(node->log(), "event=fleet_refused_LIMIT"), 1);
  // What is no plan gives way to one; then it is a plan of another key that is planted.
  assert_true(eventually([&] { return client.counter("fleet_sent") == 5; }));
  server.ask({"SET", name(6), server.ask({"GET", name(0)})});
  const auto wrong = ask_all(client, 6, 1);
  assert_true(wrong[0].plan == made[6].plan);
  assert_int_equal(node->compiles(), 7);
}

// A server that accepts, answers the greeting or not, and then sends `what` again and again, or nothing.
pid_t mad_server(const std::string& path, bool greets, const std::string& what) {
  const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  assert_int_equal(bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  assert_int_equal(listen(listening, 8), 0);
  const pid_t child = fork();
  if (child != 0) return close(listening), child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  for (;;) {
    const int fd = accept(listening, nullptr, nullptr);
    if (fork() != 0) {
      close(fd);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char buffer[4096];
    if (greets && read(fd, buffer, sizeof buffer) > 0 && write(fd, "+PONG\r\n", 7) != 7) _exit(1);
    if (greets && read(fd, buffer, sizeof buffer) <= 0) _exit(0);
    for (ssize_t size = 1; !what.empty() && size > 0;) size = write(fd, what.data(), what.size());
    pause();
  }
}

void a_mad_server_costs_a_miss_a_moment_and_a_hit_nothing(void**) {
  struct Case {
    const char* name;
    bool greets;
    std::string sends;
  };
  const Case cases[] = {{"never answers", false, ""},
                        {"answers the greeting only", true, ""},
                        {"sends a list without end", true, "*2147483647\r\n"},
                        {"sends a string without end", true, "$2000000000\r\n" + std::string(1 << 20, 'x')},
                        {"sends no protocol", true, std::string(100, '\0') + "@@@@"},
                        {"sends errors", true, "-OOM no memory\r\n"},
                        {"sends numbers", true, ":77\r\n"}};
  for (const Case& one : cases) {
    const std::filesystem::path dir = temp_dir();
    const pid_t server = mad_server(dir / "mad", one.greets, one.sends);
    const auto node = fleet_node("unix:" + (dir / "mad").string(), dir);
    node->start();
    TestClient client(node->socket());
    usleep(100000);
    const auto begin = Clock::now();
    client.ask<wire::PlanReply>(test_get(0));
    const double miss = ms_since(begin), hits = p99_of_hits_ms(client, 300);
    ask_all(client, 1, 20);
    std::printf("a server that %-26s a miss takes %.0f ms, p99 of hits %.2f ms; %s\n", one.name, miss, hits,
                client.fact("fleet").substr(5).c_str());
    assert_true(miss < 2000 && hits < 100);
    assert_int_equal(node->compiles(), 21);
    assert_true(lines_with(node->log(), "event=fleet_") < 12);
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
  }
}

void a_wrong_password_is_told_once_and_hurts_nobody(void**) {
  RedisServer server;
  server.start({"--requirepass", "right"});
  const auto node = fleet_node(server.address(), server.dir);
  write_test_file(server.dir / "password", "wrong\n");
  std::filesystem::permissions(server.dir / "password", std::filesystem::perms(0644));
  node->arguments.push_back("--fleet-password-file=" + (server.dir / "password").string());
  std::string output;
  assert_int_equal(node->run(output), 1);
  assert_contains(output, "chmod 600");
  std::filesystem::permissions(server.dir / "password", std::filesystem::perms(0600));
  node->start();
  {
    TestClient client(node->socket());
    client.ask<wire::PlanReply>(test_get(0));
    assert_true(eventually([&] { return client.fact("fleet").find("WRONGPASS") != std::string::npos; }));
    usleep(1000000);  // it tries again meanwhile
    assert_int_equal(lines_with(node->log(), "WRONGPASS"), 1);
  }
  node->signal(SIGTERM);
  assert_int_equal(node->wait(), 0);
  write_test_file(server.dir / "password", "right\n");
  node->start();
  wait_up(*node);
}

void a_better_plan_is_never_replaced(void**) {
  RedisServer server;
  server.start();
  const auto searches = fleet_node(server.address(), server.dir),
             plain = fleet_node(server.address(), server.dir);
  searches->arguments.push_back("--searchers=1");
  searches->tell_worker("search_finds", "1");
  searches->start();
  wait_up(*searches);
  TestClient client(searches->socket());
  auto get = test_get(1);
  get.tier = static_cast<uint8_t>(Tier::modelled);
  const auto best = client.ask<wire::PlanReply>(get);
  assert_int_equal(best.tier, Tier::modelled);
  assert_true(settled(*searches));
  const std::string value = server.ask({"GET", fleet_name(best.key)});
  // A node that made a baseline while it was alone comes with it, and takes the better one.
  plain->arguments[0] = "--fleet=unix:/nowhere/redis";
  plain->start();
  {
    TestClient alone(plain->socket());
    assert_int_equal(alone.ask<wire::PlanReply>(test_get(1)).tier, Tier::baseline);
  }
  plain->signal(SIGTERM);
  assert_int_equal(plain->wait(), 0);
  plain->arguments[0] = "--fleet=" + server.address();
  plain->start();
  wait_up(*plain);
  TestClient joined(plain->socket());
  // A hit asks nobody; whether it has heard of the better one by now is a matter of time.
  const Tier tier = joined.ask<wire::PlanReply>(test_get(1)).tier;
  assert_true(tier == Tier::baseline || tier == Tier::modelled);
  joined.ask<wire::Removed>([&] {
    wire::Remove remove;
    remove.keys = {best.key};
    return remove;
  }());
  const auto again = joined.ask<wire::PlanReply>(test_get(1));
  assert_int_equal(again.tier, Tier::modelled);
  assert_true(again.plan == best.plan);
  assert_true(server.ask({"GET", fleet_name(best.key)}) == value);
}

// The toolchain is known from before, so nothing but the connection is missing.
void the_first_request_waits_for_the_connection(void**) {
  RedisServer server;
  server.start();
  const auto maker = fleet_node(server.address(), server.dir),
             late = fleet_node(server.address(), server.dir);
  late->start();
  TestClient(late->socket()).ask<wire::PlanReply>(test_get(0));
  late->signal(SIGTERM);
  assert_int_equal(late->wait(), 0);
  maker->start();
  wait_up(*maker);
  TestClient client(maker->socket());
  ask_all(client, 1, 20);
  assert_true(settled(*maker));
  late->start();
  TestClient other(late->socket());
  ask_all(other, 1, 20);
  assert_int_equal(late->compiles(), 1);
}

void a_request_that_starts_nothing_finds_what_the_fleet_has(void**) {
  RedisServer server;
  server.start();
  const auto maker = fleet_node(server.address(), server.dir),
             strict = fleet_node(server.address(), server.dir);
  for (const auto& node : {maker.get(), strict.get()}) {
    node->start();
    wait_up(*node);
  }
  TestClient client(maker->socket()), other(strict->socket());
  const auto made = client.ask<wire::PlanReply>(test_get(1));
  assert_true(settled(*maker));
  assert_true(other.ask<wire::PlanReply>(test_get(1, wire::kGetNoStart)).plan == made.plan);
  assert_error(other.error_of(test_get(2, wire::kGetNoStart)), ErrorCode::NOT_FOUND, "not to compile it");
  assert_int_equal(strict->compiles(), 0);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(graphs_asked_on_four_nodes_at_once_are_compiled_once),
      cmocka_unit_test(an_empty_node_gets_1000_plans_within_3_seconds),
      cmocka_unit_test(a_server_that_is_killed_and_restarted_delays_no_hit),
      cmocka_unit_test(a_lease_ends_with_its_node),
      cmocka_unit_test(whatever_is_planted_is_a_miss),
      cmocka_unit_test(a_mad_server_costs_a_miss_a_moment_and_a_hit_nothing),
      cmocka_unit_test(a_wrong_password_is_told_once_and_hurts_nobody),
      cmocka_unit_test(a_better_plan_is_never_replaced),
      cmocka_unit_test(the_first_request_waits_for_the_connection),
      cmocka_unit_test(a_request_that_starts_nothing_finds_what_the_fleet_has),
  };
  return cmocka_run_group_tests_name("fleet", tests, nullptr, nullptr);
}
