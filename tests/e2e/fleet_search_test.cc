// Searches and measuring in a fleet: one node does it for all, and the others are left with nothing worse
// when it dies or the server does.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <set>
#include <thread>

#include "core/base/hash.h"
#include "tests/e2e/fleet.h"

namespace quern {

namespace {

constexpr const char* kDevice = "NVIDIA H200, driver 580.1";

size_t bytes_of(const TestDaemon& node, const char* name) {
  std::error_code none;
  const auto size = std::filesystem::file_size(node.dir / "fake" / name, none);
  return none ? 0 : size;
}

struct Nodes {
  RedisServer server;
  std::vector<std::unique_ptr<TestDaemon>> all;

  explicit Nodes(size_t count, const std::map<std::string, std::string>& workers) {
    server.start();
    while (all.size() < count) {
      all.push_back(fleet_node(server.address(), server.dir));
      TestDaemon& node = *all.back();
      node.arguments.push_back("--searchers=1");
      for (const auto& [name, text] : workers) node.tell_worker(name, text);
    }
  }
  void start() {
    for (const auto& node : all) {
      node->start();
      wait_up(*node);
    }
  }
  TestDaemon& operator[](size_t number) { return *all[number]; }
  size_t sum(const char* name) const {
    size_t sum = 0;
    for (const auto& node : all) sum += bytes_of(*node, name);
    return sum;
  }
  // The same graphs on all nodes at once, with the tier that is waited for. All get the same plans.
  std::vector<wire::PlanReply> ask(int first, int count, Tier tier,
                                   const std::function<void()>& meanwhile = {}) {
    const auto get = [tier](int number) {
      wire::Get get = test_get(number);
      get.tier = static_cast<uint8_t>(tier);
      return get;
    };
    std::vector<std::vector<wire::PlanReply>> answers(all.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < all.size(); ++i)
      threads.emplace_back([&, i] {
        TestClient client(all[i]->socket());
        answers[i] = ask_all(client, first, count, get);
      });
    if (meanwhile) meanwhile();
    for (std::thread& thread : threads) thread.join();
    for (const auto& node : answers)
      for (size_t graph = 0; graph < static_cast<size_t>(count); ++graph) {
        assert_int_equal(node[graph].tier, answers[0][graph].tier);
        assert_true(node[graph].plan == answers[0][graph].plan);
      }
    return answers[0];
  }
};

void a_graph_is_searched_once(void**) {
  constexpr int kGraphs = 40;
  Nodes nodes(4, {{"search_finds", "1"}, {"search_delay_ms", "50"}});
  nodes.start();
  for (const auto& plan : nodes.ask(1, kGraphs, Tier::modelled)) assert_int_equal(plan.tier, Tier::modelled);
  assert_int_equal(nodes.sum("searches"), kGraphs);
  for (const auto& node : nodes.all) assert_true(bytes_of(*node, "searches") > 0);  // they share the work
  // What comes later has it at once.
  const auto late = fleet_node(nodes.server.address(), nodes.server.dir);
  late->arguments.push_back("--searchers=1");
  for (const auto& node : nodes.all) assert_true(settled(*node));
  late->start();
  wait_up(*late);
  TestClient client(late->socket());
  for (const auto& plan : ask_all(client, 1, kGraphs)) assert_int_equal(plan.tier, Tier::modelled);
  usleep(300000);
  assert_int_equal(bytes_of(*late, "searches"), 0);
}

void a_search_that_finds_nothing_is_not_repeated(void**) {
  Nodes nodes(4, {{"search_delay_ms", "20"}});
  nodes.start();
  const auto plans = nodes.ask(1, 20, Tier::modelled);
  for (const auto& plan : plans) assert_int_equal(plan.tier, Tier::baseline);
  assert_int_equal(nodes.sum("searches"), 20);
  for (const auto& node : nodes.all) {
    TestClient client(node->socket());
    assert_text_equal(client.ask<wire::ShowReply>(wire::Show{plans[3].key}).reason, "the fake finds nothing");
  }
}

void a_server_that_is_killed_in_the_middle_of_searches(void**) {
  Nodes nodes(4, {{"search_finds", "1"}, {"search_delay_ms", "150"}});
  nodes.start();
  for (const auto& plan : nodes.ask(1, 20, Tier::modelled, [&] {
         usleep(500000);
         nodes.server.kill_hard();
         usleep(500000);
         nodes.server.start();
       }))
    assert_int_equal(plan.tier, Tier::modelled);
  // Searches that others had begun meanwhile, or have still to begin, end later.
  for (const auto& node : nodes.all) {
    TestClient client(node->socket());
    assert_true(eventually(
        [&] { return client.counter("searches_queued") == 0 && client.counter("searches_running") == 0; }));
    assert_true(settled(*node));
  }
  const size_t before = nodes.sum("searches");
  std::printf("20 graphs, the server dead from 0.5 to 1.0 s: %zu searches\n", before);
  assert_true(before >= 20 && before <= 60);  // not 80: they shared before and after
  for (const auto& node : nodes.all) wait_up(*node);
  nodes.ask(100, 10, Tier::modelled);
  assert_int_equal(nodes.sum("searches") - before, 10);
}

// A search outlives the server, and its lease is there again.
void a_lease_outlives_the_server(void**) {
  Nodes nodes(2, {{"search_finds", "1"}});
  nodes[0].tell_worker("search_delay_ms", "6000");
  nodes.start();
  TestClient first(nodes[0].socket()), second(nodes[1].socket());
  const Hash128 key = first.ask<wire::PlanReply>(test_get(1)).key;
  assert_true(eventually([&] { return bytes_of(nodes[0], "searches") == 1; }));
  nodes.server.kill_hard();
  nodes.server.start();
  wait_up(nodes[0]);
  assert_true(eventually([&] { return !nodes.server.ask({"GET", fleet_name(key, ":search")}).empty(); }));
  wire::Get get = test_get(1);
  get.tier = static_cast<uint8_t>(Tier::modelled);
  wait_up(nodes[1]);
  assert_int_equal(second.ask<wire::PlanReply>(get).tier, Tier::modelled);
  assert_int_equal(nodes.sum("searches"), 1);
}

void a_lease_ends_with_the_node_that_searches(void**) {
  Nodes nodes(2, {{"search_finds", "1"}});
  nodes[0].tell_worker("search_hangs", "9");
  nodes.start();
  TestClient dies(nodes[0].socket()), waits(nodes[1].socket());
  dies.ask<wire::PlanReply>(test_get(1));
  assert_true(eventually([&] { return bytes_of(nodes[0], "searches") == 1; }));
  wire::Get get = test_get(1);
  get.tier = static_cast<uint8_t>(Tier::modelled);
  waits.send(get);
  usleep(300000);
  assert_int_equal(bytes_of(nodes[1], "searches"), 0);
  nodes[0].kill_hard();
  assert_int_equal(waits.receive_as<wire::PlanReply>().tier, Tier::modelled);
  assert_int_equal(bytes_of(nodes[1], "searches"), 1);
}

// The time of a search runs out on one node; what it had is the others', who do not begin anew.
void a_search_without_an_end_goes_on_elsewhere(void**) {
  Nodes nodes(2, {});
  nodes[0].arguments.insert(nodes[0].arguments.end(),
                            {"--job-seconds=1", "--search-seconds=1", "--optimize-seconds=1"});
  nodes[0].tell_worker("search_tells", "1");
  nodes[0].tell_worker("search_hangs", "1");
  nodes.start();
  TestClient first(nodes[0].socket()), second(nodes[1].socket());
  first.ask<wire::PlanReply>(test_get(1));
  assert_true(eventually([&] { return bytes_of(nodes[0], "searches") == 1; }));
  wire::Get get = test_get(1);
  get.tier = static_cast<uint8_t>(Tier::modelled);
  assert_int_equal(second.ask<wire::PlanReply>(get).tier, Tier::modelled);
  assert_int_equal(nodes.sum("searches"), 1);
}

// A node that searches nothing itself hears of better plans, also of those after the server was started
// again.
void better_plans_are_news(void**) {
  Nodes nodes(2, {{"search_finds", "1"}, {"search_delay_ms", "300"}});
  nodes[1].arguments.push_back("--searchers=0");
  nodes.start();
  TestClient searches(nodes[0].socket()), hears(nodes[1].socket());
  for (int graph = 1; graph < 3; ++graph) {
    assert_int_equal(hears.ask<wire::PlanReply>(test_get(graph)).tier, Tier::baseline);
    searches.ask<wire::PlanReply>(test_get(graph));
    assert_true(
        eventually([&] { return hears.ask<wire::PlanReply>(test_get(graph)).tier == Tier::modelled; }));
    nodes.server.kill_hard();
    nodes.server.start();
    for (const auto& node : nodes.all) wait_up(*node);
  }
  assert_int_equal(bytes_of(nodes[1], "searches"), 0);
}

// Also by a node whose own search for it is still in a queue.
void what_the_news_brought_is_not_searched_again(void**) {
  constexpr int kOthers = 6;
  Nodes nodes(2, {{"search_finds", "1"}, {"search_delay_ms", "20"}});
  nodes[1].tell_worker("search_delay_ms", "1200");
  nodes.start();
  TestClient quick(nodes[0].socket()), busy(nodes[1].socket());
  ask_all(busy, 1, kOthers);
  const auto get = [](Tier tier) {
    wire::Get get = test_get(1 + kOthers);
    get.tier = static_cast<uint8_t>(tier);
    return get;
  };
  assert_int_equal(busy.ask<wire::PlanReply>(get(Tier::baseline)).tier, Tier::baseline);
  assert_int_equal(quick.ask<wire::PlanReply>(get(Tier::modelled)).tier, Tier::modelled);
  assert_true(eventually([&] { return busy.ask<wire::PlanReply>(get(Tier::baseline)).tier == Tier::modelled; }));
  assert_true(busy.counter("searches_queued") > 0);
  assert_true(
      eventually([&] { return busy.counter("searches_queued") == 0 && busy.counter("searches_running") == 0; }));
  assert_int_equal(bytes_of(nodes[1], "searches"), kOthers);
  assert_int_equal(bytes_of(nodes[0], "searches"), 1);
}

void programs_are_measured_once_for_each_device(void**) {
  Nodes nodes(4, {{"search_finds", "1"}, {"search_lists", "1"}, {"gpu", kDevice}});
  nodes[3].tell_worker("gpu", "NVIDIA H100, driver 580.1");
  nodes.start();
  for (const auto& node : nodes.all) {
    TestClient client(node->socket());
    assert_true(eventually([&] { return client.fact("gpu 0").find("sm_90a") != std::string::npos; }));
  }
  const auto plans = nodes.ask(1, 10, Tier::measured);
  for (const auto& plan : plans) assert_int_equal(plan.tier, Tier::measured);
  assert_int_equal(nodes.sum("searches"), 10);
  assert_true(eventually([&] { return bytes_of(nodes[3], "measures") == 10; }));
  assert_int_equal(nodes.sum("measures"), 20);
  for (size_t i = 0; i < 3; ++i) {
    TestClient client(nodes[i].socket());
    wire::ShowReply shown;
    assert_true(eventually([&] {
      shown = client.ask<wire::ShowReply>(wire::Show{plans[2].key});
      return !shown.timings.empty();
    }));
    for (const auto& row : shown.timings) assert_text_equal(row.device, kDevice);
  }
}

// The time that a plan has when it is published early was taken in one look, and is less than the one that it
// has in the end.
void times_of_early_plans_stay_where_they_are(void**) {
  Nodes nodes(2, {{"search_finds", "1"},
                  {"search_lists", "1"},
                  {"gpu", kDevice},
                  {"measure_early", "1"},
                  {"measure_delay_ms", "200"}});
  nodes.start();
  wire::Get get = test_get(1);
  get.tier = static_cast<uint8_t>(Tier::measured);
  TestClient first(nodes[0].socket()), second(nodes[1].socket());
  for (TestClient* client : {&first, &second})
    assert_true(eventually([&] { return client->fact("gpu 0").find("sm_90a") != std::string::npos; }));
  assert_int_equal(first.ask<wire::PlanReply>(get).tier, Tier::measured);
  // It is counted as done a moment before it is stored and the fleet is offered it.
  std::string last;
  assert_true(eventually([&] {
    last = first.ask<wire::PlanReply>(get).plan;
    return last.size() > 7000;  // the early one has 6000 bytes of code
  }));
  assert_true(eventually([&] {
    const uint64_t sent = first.counter("fleet_sent");
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return first.counter("measures_done") == 1 && settled(nodes[0]) && first.counter("fleet_sent") == sent;
  }));
  assert_true(second.ask<wire::PlanReply>(get).plan == last);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  assert_int_equal(nodes.sum("measures"), 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_graph_is_searched_once),
      cmocka_unit_test(a_search_that_finds_nothing_is_not_repeated),
      cmocka_unit_test(a_server_that_is_killed_in_the_middle_of_searches),
      cmocka_unit_test(a_lease_outlives_the_server),
      cmocka_unit_test(a_lease_ends_with_the_node_that_searches),
      cmocka_unit_test(a_search_without_an_end_goes_on_elsewhere),
      cmocka_unit_test(better_plans_are_news),
      cmocka_unit_test(what_the_news_brought_is_not_searched_again),
      cmocka_unit_test(programs_are_measured_once_for_each_device),
      cmocka_unit_test(times_of_early_plans_stay_where_they_are),
  };
  return cmocka_run_group_tests_name("fleet_search", tests, nullptr, nullptr);
}
