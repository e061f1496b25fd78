// A daemon whose cache file is damaged before it starts or while it runs: get, put, verify, restart, get. It
// never dies or hangs, gives no wrong plan, and stores again. QUERN_DAMAGE_ROUNDS says how many rounds.
#include "tests/cache/damage.h"

#include <signal.h>

#include <cstdlib>
#include <map>
#include <random>

#include "tests/e2e/fixture.h"

namespace quern {

namespace {

constexpr int kGraphs = 25, kNew = 1000;

int rounds() {
  const char* text = std::getenv("QUERN_DAMAGE_ROUNDS");
  return text ? std::atoi(text) : 60;
}

std::string store_of(const TestDaemon& daemon) { return daemon.path("cache/store-1.mdb"); }

// What each graph's plan must be, and the file that has them.
std::string fill(TestDaemon& daemon, std::map<int, std::string>& plans) {
  daemon.start();
  TestClient client(daemon.socket());
  for (int graph = 1; graph <= kGraphs; ++graph)
    plans[graph] = client.ask<wire::PlanReply>(test_get(graph)).plan;
  plans[kNew] = client.ask<wire::PlanReply>(test_get(kNew)).plan;
  client.ask<wire::Removed>(wire::Remove{{client.ask<wire::PlanReply>(test_get(kNew)).key}, 0});
  daemon.signal(SIGTERM);
  daemon.wait();
  return read_test_file(store_of(daemon));
}

// Every answer is the right plan, from the cache or made again.
int get_all(TestClient& client, const std::map<int, std::string>& plans) {
  int hits = 0;
  for (int graph = 1; graph <= kGraphs; ++graph) {
    const auto reply = client.ask<wire::PlanReply>(test_get(graph));
    assert_true(reply.plan == plans.at(graph));
    assert_int_equal(reply.unstored, 0);
    hits += reply.origin == wire::Origin::hit;
  }
  return hits;
}

void one_round(TestDaemon& daemon, const std::string& file, const std::map<int, std::string>& plans,
               std::mt19937& random, bool running, int& hits) {
  std::filesystem::remove_all(daemon.path("cache"));
  std::filesystem::create_directory(daemon.path("cache"));
  std::filesystem::permissions(daemon.path("cache"), std::filesystem::perms::owner_all);
  write_test_file(store_of(daemon), file);
  std::string what = running ? "" : damage_file(store_of(daemon), random);
  daemon.start();
  {
    TestClient client(daemon.socket());
    if (running) {
      client.ask<wire::PlanReply>(test_get(1));
      what = damage_file(store_of(daemon), random);
    }
    hits += get_all(client, plans);
    assert_int_equal(client.ask<wire::PlanReply>(test_get(kNew)).unstored, 0);
    client.ask<wire::VerifyReply>(wire::Verify{});
    assert_int_equal(kill(daemon.pid(), 0), 0);
  }
  daemon.signal(SIGTERM);
  const int status = daemon.wait();
  if (status != 0) fail_test("the daemon ended with status " + std::to_string(status) + " after: " + what);
  daemon.start();
  TestClient client(daemon.socket());
  const auto stored = client.ask<wire::PlanReply>(test_get(kNew));
  if (stored.origin != wire::Origin::hit) fail_test("it does not store again after: " + what);
  assert_true(stored.plan == plans.at(kNew));
  get_all(client, plans);
  assert_int_equal(client.ask<wire::VerifyReply>(wire::Verify{}).damaged, 0);
  daemon.signal(SIGTERM);
  assert_int_equal(daemon.wait(), 0);
}

void a_damaged_cache_ends_no_daemon(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--workers=1", "--searchers=0"};
  std::map<int, std::string> plans;
  const std::string file = fill(daemon, plans);
  std::mt19937 random(2024);
  int hits = 0;
  for (int round = 0; round < rounds(); ++round) {
    print_message("%s", round % 100 == 99 ? "." : "");
    one_round(daemon, file, plans, random, round % 2, hits);
  }
  print_message("%d rounds on a file of %zu bytes: %.1f %% of its plans were hits afterwards\n", rounds(),
                file.size(), 100.0 * hits / kGraphs / rounds());
}

// Who removes the cache means it, and who is told that a plan is stored finds it.
void a_removed_cache_is_started_anew(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--searchers=0"};
  daemon.start();
  TestClient client(daemon.socket());
  client.ask<wire::PlanReply>(test_get(1));
  std::filesystem::remove_all(daemon.path("cache"));
  for (int graph = 2; graph < 12; ++graph)
    assert_int_equal(client.ask<wire::PlanReply>(test_get(graph)).unstored, 0);
  assert_contains(daemon.log(), "was removed or replaced");
  assert_text_equal(client.fact("store"), "read-write");
  daemon.kill_hard();
  daemon.start();
  TestClient other(daemon.socket());
  for (int graph = 2; graph < 12; ++graph)
    assert_true(other.ask<wire::PlanReply>(test_get(graph)).origin == wire::Origin::hit);
  assert_true(other.ask<wire::PlanReply>(test_get(1)).origin == wire::Origin::compiled);
}

void a_rescue_is_told(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--searchers=0"};
  daemon.start();
  {
    TestClient client(daemon.socket());
    client.ask<wire::PlanReply>(test_get(1));
    std::filesystem::resize_file(store_of(daemon), 10000);
    assert_int_equal(client.ask<wire::PlanReply>(test_get(2)).unstored, 0);
    assert_int_equal(client.counter("rescues"), 1);
    assert_contains(client.fact("store_rescue"), "the cache was rebuilt with");
    const auto stats = client.ask<wire::StatsReply>(wire::Stats{1});
    assert_text_equal(stats.facts.back().name, "store_write");
    assert_text_equal(stats.facts.back().text, "ok");
  }
  assert_contains(daemon.log(), "the cache was rebuilt with");
  daemon.signal(SIGTERM);
  daemon.wait();
  daemon.start();
  TestClient client(daemon.socket());
  assert_int_equal(client.counter("rescues"), 0);
  assert_contains(client.fact("store_rescue"), "may be deleted");
  assert_true(client.ask<wire::PlanReply>(test_get(2)).origin == wire::Origin::hit);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_damaged_cache_ends_no_daemon),
      cmocka_unit_test(a_removed_cache_is_started_anew),
      cmocka_unit_test(a_rescue_is_told),
  };
  return cmocka_run_group_tests_name("e2e-damage", tests, nullptr, nullptr);
}
