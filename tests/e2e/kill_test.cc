// kill -9 of the daemon and of its workers in the middle of puts and of what searches publish: it opens
// again, and every acknowledged plan, or a better one, is there and intact. QUERN_KILL_ROUNDS says how many
// rounds.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <random>

#include "core/base/hash.h"
#include "core/base/plan.h"
#include "tests/e2e/fixture.h"

namespace quern {

namespace {

using Acknowledged = std::map<Hash128, Hash128>;  // key -> hash of the plan's bytes

// Asks for new graphs, 16 at a time, and notes what was acknowledged as stored until the daemon is gone.
void put_until_killed(TestDaemon& daemon, int& next_graph, int kill_after_ms, Acknowledged& acknowledged) {
  TestClient client(daemon.socket());
  const pid_t killer = fork();
  if (killer == 0) {
    // Of the workers, too, once: their jobs are done again.
    usleep(static_cast<useconds_t>(kill_after_ms) * 500);
    for (pid_t worker : daemon.worker_pids())
      if (kill_after_ms % 2) kill(worker, SIGKILL);
    usleep(static_cast<useconds_t>(kill_after_ms) * 500);
    kill(daemon.pid(), SIGKILL);
    _exit(0);
  }
  for (int i = 0; i < 16; ++i) client.send(test_get(next_graph++));
  while (const auto frame = client.receive()) {
    // One whose worker was killed, and then that of its second try.
    if (const auto error = wire::decode_as<wire::Error>(*frame); error.ok()) {
      assert_error(wire::to_status(error.value()), ErrorCode::CANCELLED, "from outside");
      client.send(test_get(next_graph++));
      continue;
    }
    const auto plan = wire::decode_as<wire::PlanReply>(*frame);
    assert_ok(plan);
    assert_int_equal(plan.value().unstored, 0);
    acknowledged[plan.value().key] = hash128(plan.value().plan);
    client.send(test_get(next_graph++));
  }
  daemon.wait();
}

void all_are_there(TestDaemon& daemon, const Acknowledged& acknowledged, size_t every) {
  TestClient client(daemon.socket());
  size_t number = 0;
  for (const auto& [key, plan] : acknowledged) {
    if (number++ % every != 0) continue;
    const auto stored = client.ask<wire::PlanReply>(wire::Wait{key, 1});
    assert_true(stored.origin == wire::Origin::hit);
    assert_true(hash128(stored.plan) == plan || stored.tier == Tier::modelled);
    assert_true(decode_plan(stored.plan).ok());
  }
}

void acknowledged_plans_survive_kill_9(void**) {
  const char* text = std::getenv("QUERN_KILL_ROUNDS");
  const int rounds = text ? std::atoi(text) : 50;
  TestDaemon daemon;
  daemon.tell_worker("search_finds", "1");
  Acknowledged acknowledged;
  std::mt19937 random(50);
  int next_graph = 1;
  for (int round = 0; round < rounds; ++round) {
    daemon.tell_worker("pids", "");  // those of this round only
    daemon.start();
    all_are_there(daemon, acknowledged, 7);
    put_until_killed(daemon, next_graph, 5 + static_cast<int>(random() % 60), acknowledged);
  }
  assert_true(acknowledged.size() > 100);
  daemon.start();
  all_are_there(daemon, acknowledged, 1);
  TestClient client(daemon.socket());
  const auto report = client.ask<wire::VerifyReply>(wire::Verify{});
  assert_int_equal(report.damaged, 0);
  assert_true(report.checked >= acknowledged.size());
  print_message("%zu plans acknowledged in %d rounds\n", acknowledged.size(), rounds);
}

void workers_do_not_outlive_a_killed_daemon(void**) {
  TestDaemon daemon;
  daemon.start();
  TestClient(daemon.socket()).ask<wire::PlanReply>(test_get(1));
  const auto workers = daemon.worker_pids();
  assert_true(!workers.empty());
  daemon.kill_hard();
  for (pid_t worker : workers) assert_true(eventually([worker] { return kill(worker, 0) != 0; }));
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(acknowledged_plans_survive_kill_9),
      cmocka_unit_test(workers_do_not_outlive_a_killed_daemon),
  };
  return cmocka_run_group_tests_name("kill", tests, nullptr, nullptr);
}
