// Start, stop, and what is left behind.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/e2e/fixture.h"

namespace quern {

namespace {

void a_second_daemon_says_so(void**) {
  TestDaemon daemon;
  daemon.start();
  std::string output;
  assert_int_equal(daemon.run(output), 3);
  assert_contains(output,
                  "another daemon (process " + std::to_string(daemon.pid()) + ") serves " + daemon.socket());

  daemon.arguments = {"--socket=" + daemon.path("other")};  // another socket, the same cache
  assert_int_equal(daemon.run(output), 3);
  assert_int_equal(TestClient::try_connect(daemon.path("other")), -1);
  TestClient(daemon.socket()).ask<wire::Pong>(wire::Ping{});
}

void a_stale_socket_is_cleared_away(void**) {
  TestDaemon daemon;
  daemon.start();
  daemon.kill_hard();
  assert_true(std::filesystem::exists(daemon.socket()));
  daemon.start();
  TestClient(daemon.socket()).ask<wire::Pong>(wire::Ping{});
}

void what_is_not_ours_is_left_alone(void**) {
  TestDaemon daemon;
  write_test_file(daemon.socket(), "precious");
  std::string output;
  assert_int_equal(daemon.run(output), 1);
  assert_contains(output, "is not a socket");
  assert_text_equal(read_test_file(daemon.socket()), "precious");

  std::filesystem::remove(daemon.socket());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, daemon.socket().c_str());
  const int other = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(other, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  assert_int_equal(listen(other, 1), 0);
  assert_int_equal(daemon.run(output), 3);
  assert_contains(output, "another program listens");
  close(other);
}

void the_socket_is_the_owners_alone(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--socket=" + daemon.path("new/s")};
  daemon.start_at(daemon.path("new/s"));
  struct stat info;
  assert_int_equal(stat(daemon.path("new").c_str(), &info), 0);
  assert_int_equal(info.st_mode & 07777, 0700);
  assert_int_equal(stat(daemon.path("new/s").c_str(), &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
}

void sigterm_drains(void**) {
  TestDaemon daemon;
  daemon.tell_worker("delay_ms", "60000");
  daemon.arguments = {"--workers=1"};
  daemon.start();
  TestClient client(daemon.socket());
  client.send(test_get(1));
  client.send(test_get(2));
  TestClient observer(daemon.socket());
  assert_true(eventually([&] { return daemon.compiles() == 1 && observer.counter("jobs_queued") == 1; }));
  daemon.signal(SIGTERM);
  assert_true(eventually([&] { return daemon.log().find("event=drain") != std::string::npos; }));
  client.send(test_get(3));
  assert_error(wire::to_status(client.receive_as<wire::Error>()), ErrorCode::BUSY, "about to exit");
  daemon.tell_worker("delay_ms", "0");
  assert_int_equal(client.receive_as<wire::PlanReply>().unstored, 0);
  assert_int_equal(client.receive_as<wire::PlanReply>().unstored, 0);
  assert_false(client.receive().has_value());
  assert_int_equal(daemon.wait(), 0);
  assert_false(std::filesystem::exists(daemon.socket()));
  assert_int_equal(daemon.compiles(), 2);
  for (pid_t worker : daemon.worker_pids())
    assert_true(eventually([worker] { return kill(worker, 0) != 0; }));

  daemon.start();
  TestClient again(daemon.socket());
  assert_true(again.ask<wire::PlanReply>(test_get(2)).origin == wire::Origin::hit);
}

void a_drain_has_an_end(void**) {
  TestDaemon daemon;
  daemon.tell_worker("hangs", "9");
  daemon.arguments = {"--drain-seconds=1"};
  daemon.start();
  TestClient client(daemon.socket());
  client.send(test_get(1));
  assert_true(eventually([&] { return daemon.compiles() == 1; }));
  daemon.signal(SIGTERM);
  assert_false(client.receive().has_value());
  assert_int_equal(daemon.wait(), 0);

  // And a second signal does not wait for it.
  daemon.arguments = {"--drain-seconds=1000"};
  daemon.start();
  TestClient other(daemon.socket());
  other.send(test_get(1));
  assert_true(eventually([&] { return daemon.compiles() == 2; }));
  daemon.signal(SIGTERM);
  assert_true(
      eventually([&] { return daemon.log().rfind("event=drain") > daemon.log().rfind("event=start"); }));
  daemon.signal(SIGTERM);
  assert_int_equal(daemon.wait(), 0);
}

void a_client_can_stop_its_daemon(void**) {
  TestDaemon daemon;
  daemon.start();
  TestClient client(daemon.socket());
  client.ask<wire::Ack>(wire::Shutdown{});
  assert_int_equal(daemon.wait(), 0);
}

void sighup_opens_the_log_again(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--log-file=" + daemon.path("file.log")};
  daemon.start();
  assert_true(eventually([&] { return std::filesystem::exists(daemon.path("file.log")); }));
  std::filesystem::rename(daemon.path("file.log"), daemon.path("old.log"));
  daemon.signal(SIGHUP);
  assert_true(eventually([&] { return std::filesystem::exists(daemon.path("file.log")); }));
  assert_true(eventually([&] {
    return read_test_file(daemon.path("file.log")).find("event=log_reopened") != std::string::npos;
  }));
  assert_contains(read_test_file(daemon.path("old.log")), "event=start");
}

// In the background nobody would see the warning that its log is missing.
void a_log_that_cannot_be_written_is_refused(void**) {
  for (const char* foreground : {"--foreground=yes", "--foreground=no"}) {
    TestDaemon daemon;
    std::filesystem::create_directory(daemon.path("folder.log"));
    daemon.arguments = {foreground, "--log-file=" + daemon.path("folder.log")};
    std::string output;
    assert_int_equal(daemon.run(output), 1);
    assert_contains(output, "cannot open the log file " + daemon.path("folder.log"));
    assert_int_equal(TestClient::try_connect(daemon.socket()), -1);
  }
}

void who_holds_the_cache_is_named(void**) {
  TestDaemon daemon;
  std::filesystem::create_directory(daemon.path("cache"));
  std::filesystem::permissions(daemon.path("cache"), std::filesystem::perms::owner_all);
  const int fd = open(daemon.path("cache/store.lock").c_str(), O_RDWR | O_CREAT, 0600);
  assert_int_equal(write(fd, "1\n", 2), 2);  // the holder of before
  assert_int_equal(flock(fd, LOCK_SH), 0);
  std::string output;
  assert_int_equal(daemon.run(output), 3);
  assert_contains(output, "the cache is in use by process " + std::to_string(getpid()) + ", which");
  close(fd);
}

void in_the_background_it_listens_when_its_parent_returns(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--foreground=no"};
  std::string output;
  assert_int_equal(daemon.run(output), 0);
  TestClient client(daemon.socket());
  const pid_t pid = static_cast<pid_t>(std::stoi(client.fact("pid")));
  assert_contains(read_test_file(daemon.path("cache/quernd.log")), "event=start");
  assert_int_equal(daemon.run(output), 3);
  client.ask<wire::Ack>(wire::Shutdown{});
  assert_true(eventually([pid] { return kill(pid, 0) != 0; }));
}

void nothing_to_do_ends_it(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--idle-seconds=1"};
  daemon.start();
  {
    TestClient client(daemon.socket());
    client.ask<wire::PlanReply>(test_get(1));
    usleep(1'600'000);
    client.ask<wire::Pong>(wire::Ping{});  // whoever is connected keeps it
  }
  assert_int_equal(daemon.wait(), 0);
  assert_contains(daemon.log(), "event=idle_exit");
  daemon.start();
  assert_true(TestClient(daemon.socket()).ask<wire::PlanReply>(test_get(1)).origin == wire::Origin::hit);
}

void idle_workers_end(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--worker-idle-seconds=1", "--workers=1"};
  daemon.start();
  TestClient client(daemon.socket());
  client.ask<wire::PlanReply>(test_get(1));
  assert_true(client.counter("workers") >= 1);
  assert_true(eventually([&] { return client.counter("workers") == 0; }));
  assert_true(client.ask<wire::PlanReply>(test_get(2)).origin == wire::Origin::compiled);
  assert_int_equal(client.counter("worker_restarts"), 0);
}

void bad_settings_are_named(void**) {
  TestDaemon daemon;
  std::string output;
  daemon.arguments = {"--workers=none"};
  assert_int_equal(daemon.run(output), 2);
  assert_contains(output, "--workers");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_second_daemon_says_so),
      cmocka_unit_test(a_stale_socket_is_cleared_away),
      cmocka_unit_test(what_is_not_ours_is_left_alone),
      cmocka_unit_test(the_socket_is_the_owners_alone),
      cmocka_unit_test(sigterm_drains),
      cmocka_unit_test(a_drain_has_an_end),
      cmocka_unit_test(a_client_can_stop_its_daemon),
      cmocka_unit_test(sighup_opens_the_log_again),
      cmocka_unit_test(a_log_that_cannot_be_written_is_refused),
      cmocka_unit_test(who_holds_the_cache_is_named),
      cmocka_unit_test(in_the_background_it_listens_when_its_parent_returns),
      cmocka_unit_test(nothing_to_do_ends_it),
      cmocka_unit_test(idle_workers_end),
      cmocka_unit_test(bad_settings_are_named),
  };
  return cmocka_run_group_tests_name("lifecycle", tests, nullptr, nullptr);
}
