// What a client must not be able to do to the daemon or to other clients.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <thread>

#include "core/base/bytes.h"
#include "tests/e2e/fixture.h"

namespace quern {

namespace {

void still_serves(TestDaemon& daemon) {
  TestClient client(daemon.socket());
  assert_text_equal(client.ask<wire::Pong>(wire::Ping{"hello"}).echo, "hello");
}

void garbage_does_no_harm(void**) {
  TestDaemon daemon;
  daemon.start();
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    TestClient client(daemon.socket(), round % 2 == 0);
    std::string bytes(1 + random() % 3000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    client.send_raw(bytes);
    if (round % 4 < 2) shutdown(client.fd(), SHUT_WR);
  }
  still_serves(daemon);
}

void a_mutated_conversation_does_no_harm(void**) {
  TestDaemon daemon;
  daemon.start();
  std::mt19937 random(2);
  wire::Explain explain;
  explain.graph = test_get(1).graph;
  explain.target = "sm_90a";
  const std::string talk = wire::encode(1, test_get(1)) + wire::encode(2, explain) +
                           wire::encode(3, wire::List{}) + wire::encode(4, wire::Show{Hash128{1, 2}}) +
                           wire::encode(5, wire::Subscribe{Hash128{1, 2}}) + wire::encode(6, wire::Stats{}) +
                           wire::encode(7, wire::Ping{"x"});
  for (int round = 0; round < 300; ++round) {
    TestClient client(daemon.socket());
    std::string bytes = talk;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    client.send_raw(bytes);
  }
  still_serves(daemon);
}

void broken_frames_end_their_connection(void**) {
  TestDaemon daemon;
  daemon.start();
  {
    TestClient client(daemon.socket());
    client.send_raw(std::string("\xff\xff\xff\x7f", 4) + std::string(12, '\0'));
    assert_error(wire::to_status(client.receive_as<wire::Error>()), ErrorCode::PROTOCOL, "limit");
    assert_false(client.receive().has_value());
  }
  TestClient client(daemon.socket(), false);
  client.send(wire::Ping{});
  assert_error(wire::to_status(client.receive_as<wire::Error>()), ErrorCode::PROTOCOL, "Hello was expected");
  assert_false(client.receive().has_value());
  still_serves(daemon);
}

void other_versions_are_refused_with_an_explanation(void**) {
  TestDaemon daemon;
  daemon.start();
  TestClient client(daemon.socket(), false);
  wire::Hello hello;
  hello.version_low = wire::kProtocolVersion + 1;
  hello.version_high = wire::kProtocolVersion + 3;
  client.send(hello);
  assert_error(wire::to_status(client.receive_as<wire::Error>()), ErrorCode::PROTOCOL,
               "speaks protocol version");
  assert_false(client.receive().has_value());
}

void a_slow_client_is_dropped_and_others_do_not_notice(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--max-output=1M"};
  daemon.start();
  TestClient slow(daemon.socket());
  const std::string frame = wire::encode(1, wire::Ping{std::string(100000, 'x')});
  for (int i = 0; i < 100; ++i) slow.send_raw(frame);  // and reads nothing
  still_serves(daemon);
  TestClient other(daemon.socket());
  assert_true(eventually([&] { return other.counter("clients_dropped") == 1; }));
  assert_true(slow.closed_by_daemon());
}

// The daemon stops reading such a client's requests, and goes on when it reads.
void a_client_that_reads_late_gets_every_answer(void**) {
  TestDaemon daemon;
  daemon.start();
  TestClient client(daemon.socket());
  const wire::PlanReply plan = client.ask<wire::PlanReply>(test_get(1));
  for (int round = 0; round < 20; ++round) {
    std::string requests;
    uint64_t id = 1;
    for (int i = 0; i < 300; ++i) {
      requests += wire::encode(++id, wire::Ping{std::string(100 + 37 * i % 5000, 'x')});
      requests += wire::encode(++id, test_get(1));
    }
    std::thread sender([&] { client.send_raw(requests); });
    for (uint64_t next = 2; next <= id; ++next) {
      if (next % 50 == 0) usleep(100 * round);
      const auto frame = client.receive();
      if (!frame) fail_test("the daemon hung up:\n" + daemon.log());
      assert_int_equal(frame->request, next);
      if (next % 2) assert_true(wire::decode_as<wire::PlanReply>(*frame)->plan == plan.plan);
    }
    sender.join();
  }
}

void clients_have_a_number(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--max-clients=3"};
  daemon.start();
  assert_true(eventually([&] { return TestClient(daemon.socket()).counter("clients") == 1; }));
  TestClient a(daemon.socket()), b(daemon.socket());
  auto c = std::make_unique<TestClient>(daemon.socket());
  {
    TestClient d(daemon.socket(), false);
    assert_error(wire::to_status(d.receive_as<wire::Error>()), ErrorCode::BUSY, "3 clients");
    assert_true(d.closed_by_daemon());
  }
  c.reset();
  assert_true(eventually([&] { return a.counter("clients") == 2; }));
  still_serves(daemon);
}

// Exit status of a child that runs as `user` and says with 0 to 2 how it went.
int as_user(uid_t user, const std::string& socket) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    if (setgid(user) != 0 || setuid(user) != 0) _exit(99);
    if (TestClient::try_connect(socket) < 0) _exit(1);  // the file system refuses
    TestClient client(socket, false);
    wire::Hello hello;
    hello.version_low = hello.version_high = wire::kProtocolVersion;
    client.send(hello);
    const auto frame = client.receive();
    if (frame && frame->type == static_cast<uint16_t>(wire::MessageType::Welcome)) _exit(0);
    const auto error = wire::decode_as<wire::Error>(*frame);
    _exit(error.ok() && error.value().code == static_cast<uint32_t>(ErrorCode::PERMISSION) ? 2 : 98);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void other_users_are_refused(void**) {
  if (geteuid() != 0) skip_test("only root can become somebody else");
  TestDaemon daemon;
  chmod(daemon.dir.c_str(), 0755);
  daemon.start();
  assert_int_equal(as_user(12345, daemon.socket()), 1);
  chmod(daemon.socket().c_str(), 0666);  // past the file system there is still the peer check
  assert_int_equal(as_user(12345, daemon.socket()), 2);
  daemon.kill_hard();

  daemon.arguments = {"--allow-uids=12345,12346"};
  daemon.start();
  assert_int_equal(as_user(12345, daemon.socket()), 0);
  assert_int_equal(as_user(12347, daemon.socket()), 2);
}

void open_files_run_out_without_harm(void**) {
  TestDaemon daemon;
  daemon.max_files = 60;
  daemon.start();
  TestClient client(daemon.socket());
  std::vector<int> connections;
  for (int i = 0; i < 80; ++i) connections.push_back(TestClient::try_connect(daemon.socket()));
  assert_true(eventually([&] { return client.counter("clients_refused") > 0; }));
  client.ask<wire::PlanReply>(test_get(1));  // there are files left for workers
  for (int fd : connections) close(fd);
  assert_true(eventually([&] { return client.counter("clients") == 1; }));
  still_serves(daemon);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(garbage_does_no_harm),
      cmocka_unit_test(a_mutated_conversation_does_no_harm),
      cmocka_unit_test(broken_frames_end_their_connection),
      cmocka_unit_test(other_versions_are_refused_with_an_explanation),
      cmocka_unit_test(a_slow_client_is_dropped_and_others_do_not_notice),
      cmocka_unit_test(a_client_that_reads_late_gets_every_answer),
      cmocka_unit_test(clients_have_a_number),
      cmocka_unit_test(other_users_are_refused),
      cmocka_unit_test(open_files_run_out_without_harm),
  };
  return cmocka_run_group_tests_name("hostile", tests, nullptr, nullptr);
}
