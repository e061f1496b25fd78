// The client against a daemon that is slow, restarts, hangs up or talks nonsense.
#include "capi/client.h"

#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/capi/fake_daemon.h"
#include "tests/support/test.h"

namespace quern {

namespace {

using std::chrono::milliseconds;

constexpr const char* kGraph = "graph g\nin x: f16[4, 8]\ny = relu(x)\nout y\n";

TimePoint in(milliseconds time) { return std::chrono::steady_clock::now() + time; }
TimePoint soon() { return in(milliseconds(5000)); }

ClientOptions options_for(const std::string& socket) {
  ClientOptions options;
  options.daemon.socket = socket;
  options.daemon.start = false;
  options.connect_timeout = milliseconds(2000);
  return options;
}

struct Setup {
  std::string socket = temp_dir() / "s";
  std::optional<FakeDaemon> daemon{socket};
  std::unique_ptr<Client> client;

  explicit Setup(std::function<void(const Hash128&, uint64_t)> on_generation = {}) {
    ClientOptions options = options_for(socket);
    options.on_generation = std::move(on_generation);
    Result<std::unique_ptr<Client>> opened = Client::open(std::move(options));
    assert_ok(opened);
    client = std::move(*opened);
  }
};

wire::Get get_of(const std::string& name) {
  return {"graph " + name + "\nin x: f16[4, 8]\ny = relu(x)\nout y\n", "sm_90a", 0, 0, 0, 0};
}

void assert_answers(Client& client, const std::string& echo) {
  const Result<wire::Pong> pong = client.ask<wire::Pong>(wire::Ping{echo}, soon());
  assert_ok(pong);
  assert_true(pong->echo == echo);
}

void asks_and_is_answered(void**) {
  Setup s;
  const auto reply = s.client->ask<wire::PlanReply>(wire::Get{kGraph, "sm_90a", 0, 0, 0, 0}, soon());
  assert_ok(reply);
  assert_int_equal(reply->generation, 1);
  assert_true(reply->plan == encode_plan(fake_plan(kGraph, "sm_90a", 1)));
  assert_error(s.client->ask<wire::PlanReply>(wire::Get{kGraph, "sm_none", 0, 0, 0, 0}, soon()),
               ErrorCode::UNSUPPORTED, "sm_none");
  assert_error(s.client->ask<wire::PlanReply>(wire::Ping{}, soon()), ErrorCode::PROTOCOL, "Pong");
  assert_text_equal(s.client->welcome().software, "fake quernd");
}

void a_late_answer_is_dropped(void**) {
  Setup s;
  s.daemon->hold();
  const auto start = std::chrono::steady_clock::now();
  assert_error(s.client->ask<wire::PlanReply>(get_of("late"), in(milliseconds(50))), ErrorCode::TIMEOUT);
  const auto waited = std::chrono::steady_clock::now() - start;
  assert_true(waited >= milliseconds(50) && waited < milliseconds(1000));
  s.daemon->release();
  for (int i = 0; i < 10; ++i) assert_answers(*s.client, "after " + std::to_string(i));
  const auto reply = s.client->ask<wire::PlanReply>(get_of("late"), soon());
  assert_ok(reply);
  assert_true(reply->origin == wire::Origin::hit);
  assert_int_equal(s.daemon->counts().connections, 1);
}

void a_slow_request_does_not_hold_up_others(void**) {
  Setup s;
  s.daemon->hold();
  std::atomic<bool> got{false};
  std::thread slow([&] {
    assert_ok(s.client->ask<wire::PlanReply>(get_of("slow"), soon()));
    got = true;
  });
  while (s.daemon->counts().gets == 0) usleep(1000);
  // The slow thread reads the connection now, and must hand these on.
  std::vector<std::thread> quick;
  for (int i = 0; i < 8; ++i)
    quick.emplace_back([&, i] {
      for (int j = 0; j < 50; ++j) assert_answers(*s.client, std::to_string(i * 1000 + j));
    });
  for (std::thread& thread : quick) thread.join();
  assert_false(got);
  s.daemon->release();
  slow.join();
  assert_true(got);
  assert_int_equal(s.daemon->counts().connections, 1);
}

std::atomic<Client*> to_cancel{nullptr};

// One of the waiting threads reads the connection, the others wait for that one; a signal handler may cancel.
void a_cancelled_wait_ends(void**) {
  Setup s;
  s.daemon->hold();
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i)
    waiting.emplace_back([&, i] {
      assert_error(s.client->ask<wire::PlanReply>(get_of("held" + std::to_string(i)), in(milliseconds(60000))),
                   ErrorCode::CANCELLED, "goes on with its work");
    });
  while (s.daemon->counts().gets < 4) usleep(1000);
  to_cancel = s.client.get();
  const auto previous = signal(SIGUSR1, [](int) { to_cancel.load()->cancel(); });
  const auto began = std::chrono::steady_clock::now();
  raise(SIGUSR1);
  for (std::thread& thread : waiting) thread.join();
  assert_true(std::chrono::steady_clock::now() - began < milliseconds(1000));
  signal(SIGUSR1, previous);

  assert_answers(*s.client, "calls that begin later go on");
  s.daemon->release();
  const auto reply = s.client->ask<wire::PlanReply>(get_of("held0"), soon());
  assert_ok(reply);
  assert_true(reply->origin == wire::Origin::hit);
  assert_int_equal(s.daemon->counts().connections, 1);
}

// process() in another thread must not take an answer away from under the thread that waits for it.
void a_busy_process_holds_up_nobody(void**) {
  Setup s;
  std::atomic<bool> done{false};
  std::thread busy([&] {
    while (!done) assert_ok(s.client->process());
  });
  for (int i = 0; i < 3000; ++i) assert_answers(*s.client, std::to_string(i));
  done = true;
  busy.join();
}

void answers_can_come_in_pieces(void**) {
  Setup s;
  s.daemon->send_in_pieces(7);
  assert_answers(*s.client, std::string(2000, 'x'));
  const auto reply = s.client->ask<wire::PlanReply>(get_of("pieces"), soon());
  assert_ok(reply);
  assert_ok(decode_plan(reply->plan));
}

void a_daemon_that_does_not_read_is_survived(void**) {
  Setup s;
  s.daemon->stop_reading(true);
  const std::string big(3 << 19, 'b');
  assert_error(s.client->ask<wire::Pong>(wire::Ping{big}, in(milliseconds(50))), ErrorCode::TIMEOUT);
  assert_error(s.client->ask<wire::Pong>(wire::Ping{"small"}, in(milliseconds(20))), ErrorCode::TIMEOUT);
  s.daemon->stop_reading(false);
  assert_answers(*s.client, "again");
  assert_answers(*s.client, big);
  assert_int_equal(s.daemon->counts().connections, 1);
}

void what_waits_to_be_sent_is_bounded(void**) {
  Setup s;
  s.daemon->stop_reading(true);
  const std::string big(3 << 19, 'b');
  Status last;
  for (int i = 0; i < 40 && last.code() != ErrorCode::BUSY; ++i)
    last = s.client->ask<wire::Pong>(wire::Ping{big}, in(milliseconds(5))).status();
  assert_error(last, ErrorCode::BUSY);
  assert_error(s.client->ask<wire::Pong>(wire::Ping{std::string(2 << 20, 'b')}, soon()), ErrorCode::LIMIT,
               "too big");
  s.daemon->stop_reading(false);
  // Behind 60 MB.
  assert_ok(s.client->ask<wire::Pong>(wire::Ping{"again"}, in(milliseconds(60000))));
}

void a_lost_connection_is_made_again(void**) {
  Setup s;
  assert_answers(*s.client, "before");
  s.daemon->drop_connections();
  assert_answers(*s.client, "after");
  assert_int_equal(s.daemon->counts().connections, 2);
  // Lost in the middle of a request: it is asked once more.
  s.daemon->hold();
  std::thread thread([&] { assert_ok(s.client->ask<wire::PlanReply>(get_of("lost"), soon())); });
  while (s.daemon->counts().gets < 1) usleep(1000);
  s.daemon->drop_connections();
  while (s.daemon->counts().gets < 2) usleep(1000);
  s.daemon->release();
  thread.join();
}

void only_one_retry_is_made(void**) {
  Setup s;
  s.daemon->hold();
  std::thread thread([&] {
    assert_error(s.client->ask<wire::PlanReply>(get_of("lost"), soon()), ErrorCode::DISCONNECTED, "lost");
  });
  for (int gets = 1; gets <= 2; ++gets) {
    while (s.daemon->counts().gets < gets) usleep(1000);
    s.daemon->drop_connections();
  }
  thread.join();
  assert_answers(*s.client, "and on");
}

void a_restarted_daemon_is_found(void**) {
  Setup s;
  assert_answers(*s.client, "old");
  s.daemon.reset();
  assert_error(s.client->ask<wire::Pong>(wire::Ping{}, soon()), ErrorCode::NO_DAEMON, "turned off");
  s.daemon.emplace(s.socket);
  assert_answers(*s.client, "new");
}

void nonsense_ends_the_connection_only(void**) {
  Setup s;
  s.daemon->answer_next_with("\xff\xff\xff\x7f nonsense and more");
  assert_error(s.client->ask<wire::Pong>(wire::Ping{}, soon()), ErrorCode::PROTOCOL);
  assert_answers(*s.client, "after nonsense");
  // An error about the connection itself says why it ended.
  s.daemon->answer_next_with(wire::encode(0, wire::to_error(Status(ErrorCode::PERMISSION, "not you"))));
  assert_error(s.client->ask<wire::Pong>(wire::Ping{}, soon()), ErrorCode::PERMISSION, "not you");
  // An answer to nobody's request is dropped.
  s.daemon->answer_next_with(wire::encode(999999, wire::Ack{}));
  assert_error(s.client->ask<wire::Pong>(wire::Ping{}, in(milliseconds(50))), ErrorCode::TIMEOUT);
  assert_answers(*s.client, "in order");
}

void a_bad_greeting_is_reported(void**) {
  const std::string socket = temp_dir() / "s";
  FakeDaemon daemon(socket);
  daemon.stop_reading(true);
  ClientOptions options = options_for(socket);
  options.connect_timeout = milliseconds(50);
  assert_error(Client::open(options), ErrorCode::TIMEOUT, "does not answer");
  options.daemon.socket = temp_dir() / "nothing";
  assert_error(Client::open(options), ErrorCode::NO_DAEMON, "nothing");
  options.daemon.socket = std::string(300, 'x');
  assert_error(Client::open(options), ErrorCode::INVALID_ARGUMENT, "QUERN_SOCKET");
}

void subscriptions_outlive_connections(void**) {
  std::atomic<uint64_t> seen{0};
  Setup s([&](const Hash128&, uint64_t generation) { seen = generation; });
  const auto reply = s.client->ask<wire::PlanReply>(get_of("sub"), soon());
  assert_ok(reply);
  s.client->subscribe(reply->key);
  s.client->subscribe(reply->key);
  assert_answers(*s.client, "1");
  assert_int_equal(s.daemon->counts().subscribes, 1);
  assert_int_equal(seen, 1);

  s.daemon->improve_all();
  pollfd ready{s.client->fd(), POLLIN, 0};
  assert_int_equal(poll(&ready, 1, 5000), 1);
  assert_ok(s.client->process());
  assert_int_equal(seen, 2);
  assert_int_equal(poll(&ready, 1, 0), 0);

  s.daemon->drop_connections();
  assert_int_equal(poll(&ready, 1, 5000), 1);
  assert_ok(s.client->process());  // notices, and connects again
  assert_ok(s.client->process());
  assert_answers(*s.client, "2");
  assert_int_equal(s.daemon->counts().subscribes, 2);
  s.daemon->improve_all();
  assert_int_equal(poll(&ready, 1, 5000), 1);
  assert_ok(s.client->process());
  assert_int_equal(seen, 3);

  s.client->unsubscribe(reply->key);
  assert_answers(*s.client, "3");
  assert_int_equal(s.daemon->counts().unsubscribes, 1);
  s.daemon->improve_all();
  assert_answers(*s.client, "4");
  assert_int_equal(seen, 3);
}

void many_requests_keep_to_the_limit(void**) {
  const std::string socket = temp_dir() / "s";
  FakeDaemon daemon(socket);
  daemon.allow_open_requests(4);
  Result<std::unique_ptr<Client>> client = Client::open(options_for(socket));
  assert_ok(client);
  daemon.hold();
  std::vector<wire::Get> requests;
  for (int i = 0; i < 21; ++i) requests.push_back(get_of("many" + std::to_string(i)));
  std::vector<Result<Answer>> answers;
  std::thread thread([&] { answers = (*client)->exchange_all(requests, soon()); });
  while (daemon.counts().gets < 4) usleep(1000);
  usleep(20000);
  assert_int_equal(daemon.counts().gets, 4);
  daemon.release();
  thread.join();
  assert_int_equal(answers.size(), 21);
  for (size_t i = 0; i < answers.size(); ++i) {
    assert_ok(answers[i]);
    const Result<wire::PlanReply> reply = answers[i]->as<wire::PlanReply>();
    assert_ok(reply);
    assert_true(reply->plan == encode_plan(fake_plan(requests[i].graph, "sm_90a", 1)));
  }
}

void progress_comes_before_the_answer(void**) {
  Setup s;
  std::string heard;
  const auto reply = s.client->ask<wire::VerifyReply>(wire::Verify{}, soon(), [&](const wire::Progress& now) {
    const auto [done, total] = std::pair(now.done, now.total);
    heard += std::to_string(done) + "/" + std::to_string(total) + " ";
  });
  assert_ok(reply);
  assert_text_equal(heard, "1/2 2/2 ");
  assert_ok(s.client->ask<wire::VerifyReply>(wire::Verify{}, soon()));
}

void a_forked_child_is_told(void**) {
  Setup s;
  assert_answers(*s.client, "before");
  const pid_t child = fork();
  if (child == 0) {
    const bool right = s.client->ask<wire::Pong>(wire::Ping{}, soon()).status().code() == ErrorCode::FORKED &&
                       s.client->process().code() == ErrorCode::FORKED;
    s.client->leave_to_parent();
    (void)s.client.release();
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
  assert_answers(*s.client, "the parent goes on");
  assert_int_equal(s.daemon->counts().connections, 1);
}

void signals_do_not_end_a_wait(void**) {
  Setup s;
  struct sigaction action {
  }, old;
  static std::atomic<int> signals;
  action.sa_handler = [](int) { ++signals; };
  sigaction(SIGALRM, &action, &old);
  const itimerval often{{0, 1000}, {0, 1000}}, never{};
  s.daemon->hold();
  setitimer(ITIMER_REAL, &often, nullptr);
  const auto start = std::chrono::steady_clock::now();
  const Status status = s.client->ask<wire::PlanReply>(get_of("signals"), in(milliseconds(100))).status();
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &old, nullptr);
  assert_error(status, ErrorCode::TIMEOUT);
  assert_true(std::chrono::steady_clock::now() - start >= milliseconds(100));
  assert_true(signals > 5);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(asks_and_is_answered),
      cmocka_unit_test(a_late_answer_is_dropped),
      cmocka_unit_test(a_slow_request_does_not_hold_up_others),
      cmocka_unit_test(a_cancelled_wait_ends),
      cmocka_unit_test(a_busy_process_holds_up_nobody),
      cmocka_unit_test(answers_can_come_in_pieces),
      cmocka_unit_test(a_daemon_that_does_not_read_is_survived),
      cmocka_unit_test(what_waits_to_be_sent_is_bounded),
      cmocka_unit_test(a_lost_connection_is_made_again),
      cmocka_unit_test(only_one_retry_is_made),
      cmocka_unit_test(a_restarted_daemon_is_found),
      cmocka_unit_test(nonsense_ends_the_connection_only),
      cmocka_unit_test(a_bad_greeting_is_reported),
      cmocka_unit_test(subscriptions_outlive_connections),
      cmocka_unit_test(many_requests_keep_to_the_limit),
      cmocka_unit_test(progress_comes_before_the_answer),
      cmocka_unit_test(a_forked_child_is_told),
      cmocka_unit_test(signals_do_not_end_a_wait),
  };
  return cmocka_run_group_tests_name("client", tests, nullptr, nullptr);
}
