// Workers that die, hang, spin, change or have no compiler.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/fixture.h"

namespace quern {

namespace {

// Returns when the process is dead, though its parent may not have taken note.
void kill_and_see(pid_t process) {
  kill(process, SIGKILL);
  const std::string stat = "/proc/" + std::to_string(process) + "/stat";
  assert_true(eventually([&] {
    return !std::filesystem::exists(stat) || read_test_file(stat).find(") Z") != std::string::npos;
  }));
}

void an_idle_worker_that_is_killed_is_replaced(void**) {
  TestDaemon daemon;
  daemon.start();
  TestClient client(daemon.socket());
  client.ask<wire::PlanReply>(test_get(1));
  for (pid_t worker : daemon.worker_pids()) kill_and_see(worker);
  assert_int_equal(client.ask<wire::PlanReply>(test_get(2)).generation, 1);
  assert_int_equal(daemon.compiles(), 2);
  assert_true(client.counter("worker_restarts") >= 1);
  assert_int_equal(client.counter("quarantined"), 0);
}

void a_worker_killed_in_its_job_is_forgiven(void**) {
  TestDaemon daemon;
  daemon.tell_worker("hangs", "1");
  daemon.start();
  TestClient client(daemon.socket());
  client.send(test_get(1));
  assert_true(eventually([&] { return daemon.compiles() == 1; }));
  for (pid_t worker : daemon.worker_pids()) kill(worker, SIGKILL);
  assert_true(client.receive_as<wire::PlanReply>().origin == wire::Origin::compiled);
  assert_int_equal(daemon.compiles(), 2);
  assert_int_equal(client.counter("jobs_retried"), 1);
}

void a_graph_that_crashes_twice_is_set_aside(void**) {
  TestDaemon daemon;
  daemon.tell_worker("crashes", "2");
  daemon.start();
  TestClient client(daemon.socket());
  assert_error(client.error_of(test_get(1)), ErrorCode::QUARANTINED, "signal 6");
  assert_error(client.error_of(test_get(1)), ErrorCode::QUARANTINED);
  assert_int_equal(daemon.compiles(), 2);
  client.ask<wire::PlanReply>(test_get(2));  // others are served
  daemon.signal(SIGTERM);
  daemon.wait();
  daemon.start();
  TestClient again(daemon.socket());
  assert_error(again.error_of(test_get(1)), ErrorCode::QUARANTINED, "signal 6");
}

// Killed twice by others, it is no worse than before.
void deaths_from_outside_do_not_count(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--workers=1", "--searchers=0"};
  daemon.start();
  TestClient client(daemon.socket());
  for (const int number : {SIGKILL, SIGTERM}) {
    daemon.tell_worker("hangs", "2");
    const size_t before = daemon.compiles();
    client.send(test_get(1));
    for (size_t i = 1; i <= 2; ++i) {
      assert_true(eventually([&] { return daemon.compiles() == before + i; }));
      for (pid_t worker : daemon.worker_pids()) kill(worker, number);
    }
    assert_error(wire::to_status(client.receive_as<wire::Error>()), ErrorCode::CANCELLED, "from outside");
  }
  assert_int_equal(client.counter("quarantined"), 0);
  assert_true(client.ask<wire::PlanReply>(test_get(1)).origin == wire::Origin::compiled);
}

void a_job_has_a_wall_clock(void**) {
  TestDaemon daemon;
  daemon.tell_worker("hangs", "1");
  daemon.arguments = {"--job-seconds=1"};
  daemon.start();
  TestClient client(daemon.socket());
  client.ask<wire::PlanReply>(test_get(1));  // the second try
  assert_contains(daemon.log(), "took longer than it is allowed");
}

void a_job_has_cpu_time(void**) {
  TestDaemon daemon;
  daemon.tell_worker("spins", "1");
  daemon.arguments = {"--job-cpu-seconds=1"};
  daemon.start();
  TestClient client(daemon.socket());
  client.ask<wire::PlanReply>(test_get(1));
  assert_contains(daemon.log(), "signal 24");  // SIGXCPU
}

void compile_errors_reach_the_client(void**) {
  TestDaemon daemon;
  daemon.tell_worker("fails", "line 7: what is this");
  daemon.start();
  TestClient client(daemon.socket());
  assert_error(client.error_of(test_get(1)), ErrorCode::COMPILE, "line 7: what is this");
  daemon.tell_worker("fails", "");
  client.ask<wire::PlanReply>(test_get(1));
}

void hits_work_without_a_compiler(void**) {
  TestDaemon daemon;
  daemon.start();
  TestClient(daemon.socket()).ask<wire::PlanReply>(test_get(1));
  daemon.signal(SIGTERM);
  daemon.wait();
  daemon.tell_worker("no_compiler", "no libnvrtc in any place");
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(client.ask<wire::PlanReply>(test_get(1)).origin == wire::Origin::hit);
  assert_error(client.error_of(test_get(2)), ErrorCode::NO_COMPILER, "no libnvrtc in any place");
  assert_text_equal(client.fact("compiler"), "no libnvrtc in any place");
}

void a_missing_worker_is_named(void**) {
  TestDaemon daemon;
  daemon.worker = "/nowhere/quern-worker";
  daemon.start();
  TestClient client(daemon.socket());
  assert_error(client.error_of(test_get(1)), ErrorCode::NO_COMPILER, "/nowhere/quern-worker");
  daemon.kill_hard();
  daemon.worker = "/bin/true";  // starts, and says nothing
  daemon.start();
  TestClient other(daemon.socket());
  assert_error(other.error_of(test_get(1)), ErrorCode::NO_COMPILER, "exited with status 0");
}

void no_plan_is_kept_under_the_key_of_another_compiler(void**) {
  TestDaemon daemon;
  // One process: a searcher that is back first would tell of the new compiler before anybody asks.
  daemon.arguments = {"--workers=1", "--searchers=0"};
  daemon.start();
  TestClient client(daemon.socket());
  const auto before = client.ask<wire::PlanReply>(test_get(1));
  // An upgrade under a running daemon: the old worker goes, the next one finds another compiler.
  daemon.tell_worker("toolchain", "fake 2.0");
  for (pid_t worker : daemon.worker_pids()) kill_and_see(worker);
  assert_error(client.error_of(test_get(2)), ErrorCode::BUSY, "from fake 1.0 to fake 2.0");
  assert_true(eventually([&] { return client.fact("toolchain") == "fake 2.0"; }));
  client.ask<wire::PlanReply>(test_get(2));
  const auto after = client.ask<wire::PlanReply>(test_get(1));
  assert_true(after.origin == wire::Origin::compiled && after.key != before.key);
}

void plans_are_answered_though_nothing_can_be_kept(void**) {
  TestDaemon daemon;
  write_test_file(daemon.path("file"), "");
  daemon.arguments = {"--cache-dir=" + daemon.path("file/cache")};
  daemon.start();
  TestClient client(daemon.socket());
  const auto plan = client.ask<wire::PlanReply>(test_get(1));
  assert_int_equal(plan.unstored, 1);
  assert_contains(plan.warning, "not stored");
  assert_contains(client.fact("store"), "none: ");
}

void a_read_only_cache_is_read(void**) {
  if (geteuid() != 0) skip_test("only root can make a cache of somebody else");
  TestDaemon daemon;
  daemon.start();
  TestClient(daemon.socket()).ask<wire::PlanReply>(test_get(1));
  daemon.signal(SIGTERM);
  daemon.wait();
  // A user who may read the cache but not write to it.
  chmod(daemon.dir.c_str(), 01777);
  chmod(daemon.path("fake").c_str(), 0777);
  chmod(daemon.path("fake/compiles").c_str(), 0666);
  chmod(daemon.path("fake/pids").c_str(), 0666);
  for (const char* file : {"log", "s.lock"}) std::filesystem::remove(daemon.path(file));
  chmod(daemon.path("cache").c_str(), 0755);
  for (const auto& file : std::filesystem::directory_iterator(daemon.path("cache")))
    chmod(file.path().c_str(), 0644);
  daemon.run_as = 12345;
  daemon.start();
  TestClient client(daemon.socket());
  assert_contains(client.fact("store"), "read-only");
  assert_true(client.ask<wire::PlanReply>(test_get(1)).origin == wire::Origin::hit);
  assert_int_equal(client.ask<wire::PlanReply>(test_get(2)).unstored, 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_idle_worker_that_is_killed_is_replaced),
      cmocka_unit_test(a_worker_killed_in_its_job_is_forgiven),
      cmocka_unit_test(a_graph_that_crashes_twice_is_set_aside),
      cmocka_unit_test(deaths_from_outside_do_not_count),
      cmocka_unit_test(a_job_has_a_wall_clock),
      cmocka_unit_test(a_job_has_cpu_time),
      cmocka_unit_test(compile_errors_reach_the_client),
      cmocka_unit_test(hits_work_without_a_compiler),
      cmocka_unit_test(a_missing_worker_is_named),
      cmocka_unit_test(no_plan_is_kept_under_the_key_of_another_compiler),
      cmocka_unit_test(plans_are_answered_though_nothing_can_be_kept),
      cmocka_unit_test(a_read_only_cache_is_read),
  };
  return cmocka_run_group_tests_name("worker", tests, nullptr, nullptr);
}
