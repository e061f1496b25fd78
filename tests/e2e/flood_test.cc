// What one client does, or many, to fill the daemon: it stays small, others are served as before, and what
// they ask for is next.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>

#include "tests/e2e/fixture.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kMostKilobytes = 256 << 10;
// A daemon that takes no turns had 98 to 200 ms. One that does answers a hit behind one turn of each of 250
// clients: 0.4 to 5.5 ms, by how fast the machine copies what they send.
constexpr double kMostMs = 20;

// The most that the process ever had resident.
uint64_t peak_kilobytes(pid_t pid) {
  std::istringstream in(read_test_file("/proc/" + std::to_string(pid) + "/status"));
  for (std::string word; in >> word;) {
    uint64_t value = 0;
    if (word == "VmHWM:" && in >> value) return value;
  }
  fail_test("no VmHWM");
  return 0;
}

// A graph of about `bytes`, which no other number has.
wire::Get big_get(int number, size_t bytes, uint32_t flags = 0) {
  std::string text = "graph big\nin v0: f32[" + std::to_string(number + 1) + "]\n";
  int last = 0;
  for (; text.size() + 8 < bytes && last < 4000; ++last)
    text += "v" + std::to_string(last + 1) + " = relu(v" + std::to_string(last) + ")  # " +
            std::string(8, 'x') + "\n";
  text += "out v" + std::to_string(last) + "\n";
  if (text.size() < bytes) text += "#" + std::string(bytes - text.size(), 'x') + "\n";
  wire::Get get;
  get.graph = text;
  get.target = "sm_90a";
  get.flags = flags;
  return get;
}

// A process that floods until the test kills it.
class Flood {
 public:
  explicit Flood(const std::function<void()>& flood) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // What is measured is how the daemon shares itself out, not how the system shares out two processors.
    setpriority(PRIO_PROCESS, 0, 19);
    flood();
    for (;;) pause();
  }
  ~Flood() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
};

// Opens `count` connections that have greeted.
std::vector<std::unique_ptr<TestClient>> clients(const TestDaemon& daemon, int count) {
  std::vector<std::unique_ptr<TestClient>> all;
  for (int i = 0; i < count; ++i) all.push_back(std::make_unique<TestClient>(daemon.socket()));
  return all;
}

// How long a thread was ready to run and had no processor, in milliseconds.
double waited_for_processor(const std::string& process) {
  std::istringstream in(read_test_file("/proc/" + process + "/schedstat"));
  double ran = 0, waited = 0;
  in >> ran >> waited;
  return waited / 1e6;
}

// Without the time for which the system gave the processor to others than the daemon's thread or this one:
// what is asked is how the daemon shares itself out, also on a machine that is busy.
double p99_of_hits(const TestDaemon& daemon, TestClient& client, milliseconds time) {
  std::vector<double> took;
  const std::string server = std::to_string(daemon.pid());
  const auto waited = [&] { return waited_for_processor(server) + waited_for_processor("self"); };
  for (const auto end = Clock::now() + time; Clock::now() < end; usleep(500)) {
    const double before = waited();
    const auto start = Clock::now();
    client.ask<wire::PlanReply>(test_get(1));
    const double wall = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    took.push_back(std::max(wall - (waited() - before), 0.0));
  }
  std::sort(took.begin(), took.end());
  return took[took.size() * 99 / 100];
}

// During the flood; the best of some rounds.
void hits_stay_quick(TestDaemon& daemon, TestClient& client, const char* flood) {
  double best = 1e9;
  for (int round = 0; round < 4 && (round == 0 || best > kMostMs); ++round)
    best = std::min(best, p99_of_hits(daemon, client, milliseconds(1500)));
  const uint64_t peak = peak_kilobytes(daemon.pid());
  std::printf("flood %-28s hits p99 %.2f ms, peak %.1f MiB\n", flood, best, static_cast<double>(peak) / 1024);
  if (best > kMostMs) fail_test("hits are slow");
  if (peak > kMostKilobytes) fail_test("the daemon takes too much memory");
}

struct Setup {
  TestDaemon daemon;
  std::unique_ptr<TestClient> other;

  explicit Setup(std::vector<std::string> arguments = {}) {
    daemon.arguments = std::move(arguments);
    daemon.arguments.push_back("--log-level=info");
    daemon.start();
    other = std::make_unique<TestClient>(daemon.socket());
    other->ask<wire::PlanReply>(test_get(1));
  }
};

void polls_that_time_out_leave_nothing(void**) {
  Setup s;
  s.daemon.tell_worker("delay_ms", "60000");
  Flood flood([&] {
    TestClient client(s.daemon.socket());
    wire::Get get = big_get(7, 900 << 10);
    get.timeout_ms = 5;
    for (;;) client.ask<wire::Error>(get);
  });
  hits_stay_quick(s.daemon, *s.other, "polls that time out");
}

void incomplete_frames_are_bounded_and_have_a_time(void**) {
  Setup s({"--client-seconds=2"});
  const std::string part = wire::encode(1, wire::Ping{std::string(2000000, 'x')}).substr(0, 1990000);
  Flood flood([&] {
    auto all = clients(s.daemon, 250);
    for (auto& client : all) {
      for (size_t at = 0; at < part.size();) {
        const ssize_t sent =
            send(client->fd(), part.data() + at, part.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent <= 0) break;
        at += static_cast<size_t>(sent);
      }
    }
    for (;; usleep(1000))
      for (auto& client : all) send(client->fd(), "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  assert_true(eventually([&] { return s.other->counter("clients") > 200; }));
  hits_stay_quick(s.daemon, *s.other, "incomplete frames");
  assert_true(eventually([&] { return s.other->counter("clients") == 1; }));
}

void unread_answers_are_bounded_and_have_a_time(void**) {
  Setup s({"--client-seconds=2"});
  Flood flood([&] {
    auto all = clients(s.daemon, 250);
    const std::string ping = wire::encode(1, wire::Ping{std::string(60000, 'x')});
    for (int i = 0;; ++i) {
      if (i % 100 == 99) usleep(1000);
      for (auto& client : all) send(client->fd(), ping.data(), ping.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  });
  hits_stay_quick(s.daemon, *s.other, "unread answers");
  assert_true(eventually([&] { return s.other->counter("clients") == 1; }));
  assert_true(s.other->counter("clients_dropped") > 0);
}

void parsing_is_not_in_the_way(void**) {
  Setup s;
  s.daemon.tell_worker("delay_ms", "50");
  std::vector<std::unique_ptr<Flood>> floods;
  for (int i = 0; i < 2; ++i)
    floods.push_back(std::make_unique<Flood>([&, i] {
      TestClient client(s.daemon.socket());
      for (int number = 0;; ++number) {
        client.send(big_get(number * 2 + i, 90000, wire::kGetNoWait));
        if (number >= 100) client.receive();
      }
    }));
  hits_stay_quick(s.daemon, *s.other, "graphs of 90 KB");
}

void all_other_memory_of_clients_is_bounded(void**) {
  Setup s({"--max-requests=100000"});
  s.daemon.tell_worker("delay_ms", "60000");
  Flood flood([&] {
    auto all = clients(s.daemon, 50);
    for (uint64_t number = 0;; ++number)
      for (auto& client : all) {
        client->send(big_get(static_cast<int>(number % 3), 20000));
        client->send(wire::Subscribe{Hash128{number, number * 7919}});
        char buffer[4096];
        while (recv(client->fd(), buffer, sizeof buffer, MSG_DONTWAIT) > 0) {
        }
      }
  });
  hits_stay_quick(s.daemon, *s.other, "requests and subscriptions");
}

void a_miss_of_another_client_is_next(void**) {
  Setup s({"--workers=1"});
  s.daemon.tell_worker("delay_ms", "30");
  TestClient greedy(s.daemon.socket());
  for (int i = 0; i < 250; ++i) {
    wire::Get get = test_get(1000 + i);
    get.priority = 255;
    greedy.send(get);
  }
  assert_true(eventually([&] { return s.other->counter("jobs_queued") > 200; }));
  const size_t before = s.daemon.compiles();
  s.other->ask<wire::PlanReply>(test_get(2));
  assert_true(s.daemon.compiles() - before <= 3);  // the one that ran, this one, perhaps one more
  // Nor is there no room left for it.
  TestClient background(s.daemon.socket());
  for (int i = 0; i < 1200; ++i) background.send(test_get(5000 + i, wire::kGetNoWait));
  uint64_t busy = 0;
  for (int i = 0; i < 1200; ++i)
    busy += background.receive()->type == static_cast<uint16_t>(wire::MessageType::Error);
  assert_true(busy > 0);
  s.other->ask<wire::PlanReply>(test_get(3));
  s.other->ask<wire::Pending>(test_get(4, wire::kGetNoWait));
}

void refused_users_cost_nothing(void**) {
  if (geteuid() != 0) skip_test("only root can become somebody else");
  Setup s({"--allow-uids=12345", "--max-clients=20"});
  chmod(s.daemon.dir.c_str(), 0755);
  std::vector<std::unique_ptr<Flood>> floods;
  for (int i = 0; i < 2; ++i)
    floods.push_back(std::make_unique<Flood>([&] {
      if (setuid(12346) != 0) _exit(1);
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // which a change of user takes away
      for (std::vector<int> open;;) {
        open.push_back(TestClient::try_connect(s.daemon.socket()));
        if (open.size() < 100) continue;
        for (int fd : open) close(fd);
        open.clear();
      }
    }));
  assert_true(eventually([&] { return s.other->counter("clients_refused") > 500; }));
  for (int i = 0; i < 200; ++i) TestClient(s.daemon.socket()).ask<wire::Pong>(wire::Ping{});
  hits_stay_quick(s.daemon, *s.other, "refused users");
  floods.clear();
  assert_true(s.daemon.log().size() < 200000);
  assert_contains(s.daemon.log(), "client_refused");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(polls_that_time_out_leave_nothing),
      cmocka_unit_test(incomplete_frames_are_bounded_and_have_a_time),
      cmocka_unit_test(unread_answers_are_bounded_and_have_a_time),
      cmocka_unit_test(parsing_is_not_in_the_way),
      cmocka_unit_test(all_other_memory_of_clients_is_bounded),
      cmocka_unit_test(a_miss_of_another_client_is_next),
      cmocka_unit_test(refused_users_cost_nothing),
  };
  return cmocka_run_group_tests_name("flood", tests, nullptr, nullptr);
}
