// A day of a daemon in QUERN_SOAK_SECONDS (default 8): clients that come, go, break off and talk nonsense,
// hits, misses, evictions, searches, removals, verifications, and now and then a worker or the store's writer
// that is killed. What the daemon holds (memory, descriptors, mappings, the file) must not grow with what it
// has done.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>

#include "core/base/hash.h"
#include "core/base/plan.h"
#include "tests/e2e/fixture.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kCacheMib = 16;
// Bounds, whatever the time.
constexpr double kMostMemoryMib = 64, kMostFileMib = 2 * kCacheMib, kMostMappedMib = 512;
constexpr size_t kMostMappings = 200, kMostDescriptors = 120;
// And what the second half may take more than the first.
constexpr double kMostMoreMemoryMib = 12;

struct Held {
  double memory_mib = 0, mapped_file_mib = 0, file_mib = 0;
  size_t descriptors = 0, mappings = 0;

  void raise(const Held& now) {
    memory_mib = std::max(memory_mib, now.memory_mib);
    mapped_file_mib = std::max(mapped_file_mib, now.mapped_file_mib);
    file_mib = std::max(file_mib, now.file_mib);
    descriptors = std::max(descriptors, now.descriptors);
    mappings = std::max(mappings, now.mappings);
  }
  void print(const char* when) const {
    std::printf(
        "%-12s memory %.1f MiB, descriptors %zu, mappings %zu, of the store %.0f MiB, its file %.1f MiB\n",
        when, memory_mib, descriptors, mappings, mapped_file_mib, file_mib);
  }
};

Held held_by(const TestDaemon& daemon) {
  namespace fs = std::filesystem;
  const std::string process = "/proc/" + std::to_string(daemon.pid());
  Held held;
  std::istringstream status(read_test_file(process + "/status"));
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == "RssAnon:" && status >> kib) held.memory_mib = kib / 1024;
  }
  std::istringstream maps(read_test_file(process + "/maps"));
  for (std::string line; std::getline(maps, line); ++held.mappings) {
    unsigned long first = 0, last = 0;
    if (line.find("store-1.mdb") != std::string::npos &&
        std::sscanf(line.c_str(), "%lx-%lx", &first, &last) == 2)
      held.mapped_file_mib += static_cast<double>(last - first) / (1 << 20);
  }
  held.descriptors =
      static_cast<size_t>(std::distance(fs::directory_iterator(process + "/fd"), fs::directory_iterator()));
  std::error_code none;
  if (const auto bytes = fs::file_size(daemon.path("cache/store-1.mdb"), none); !none)
    held.file_mib = static_cast<double>(bytes) / (1 << 20);
  return held;
}

// A child of the daemon, as long as it lives.
pid_t child_named(pid_t parent, const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    pid_t number = 0, of = 0;
    std::string called, state;
    if (stat >> number >> called >> state >> of && of == parent && called == "(" + name + ")") return number;
  }
  return 0;
}

class Soak {
 public:
  Soak() {
    daemon_.arguments = {"--cache-size=16M", "--log-level=error"};
    daemon_.tell_worker("search_finds", "1");
    daemon_.start();
    for (int i = 0; i < 12; ++i) clients_.push_back(connect());
  }

  void run(double seconds) {
    const auto start = Clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    Held halves[2];
    for (double next = 0; passed() < seconds;) {
      act();
      if (passed() < next) continue;
      next += std::min(seconds / 40, 1.0);
      halves[passed() < seconds / 2 ? 0 : 1].raise(held_by(daemon_));
    }
    halves[0].print("first half");
    halves[1].print("second half");
    settle();
    for (const Held& held : halves) {
      if (held.memory_mib > kMostMemoryMib) fail_test("too much memory");
      if (held.file_mib > kMostFileMib || held.mapped_file_mib > kMostMappedMib)
        fail_test("too large a file");
      if (held.descriptors > kMostDescriptors) fail_test("too many descriptors");
      if (held.mappings > kMostMappings) fail_test("too many mappings");
    }
    if (halves[1].memory_mib > halves[0].memory_mib + kMostMoreMemoryMib) fail_test("memory grows");
  }

 private:
  std::unique_ptr<TestClient> connect() const { return std::make_unique<TestClient>(daemon_.socket()); }
  int number_of_a_new_graph() { return 1000 + next_graph_++; }

  void act() {
    ++actions_;
    TestClient& client = *clients_[random_() % clients_.size()];
    const auto what = random_() % 1000;
    if (what < 800) return get(client, static_cast<int>(random_() % 40));
    if (what < 930) return get(client, number_of_a_new_graph());
    if (what < 950) return leave_early();
    if (what < 970) return void(clients_[random_() % clients_.size()] = connect());
    if (what < 980) return look(client);
    if (what < 985) return void(client.ask<wire::Removed>(wire::Remove{{last_key_}}));
    if (what < 995) return talk_nonsense();
    kill_a_child();
  }

  // Plans of one tier of one graph are always the same bytes. A job whose worker was killed twice has no
  // plan.
  void get(TestClient& client, int number) {
    client.send(test_get(number));
    const auto frame = client.receive();
    if (!frame) fail_test("the daemon hung up");
    if (const auto error = wire::decode_as<wire::Error>(*frame); error.ok()) {
      assert_error(wire::to_status(error.value()), ErrorCode::CANCELLED, "from outside");
      ++cancelled_;
      return;
    }
    const auto plan = wire::decode_as<wire::PlanReply>(*frame);
    assert_ok(plan);
    last_key_ = plan->key;
    (plan->origin == wire::Origin::hit ? hits_ : misses_) += 1;
    const Hash128 hash = hash128(plan->plan);
    if (number < 1000) assert_true(known_.try_emplace({number, plan->tier}, hash).first->second == hash);
    assert_ok(decode_plan(plan->plan));
  }

  // With jobs, subscriptions and half a frame open.
  void leave_early() {
    const auto client = connect();
    for (int i = 0; i < 3; ++i) client->send(test_get(number_of_a_new_graph()));
    client->send(wire::Subscribe{last_key_});
    const std::string frame = wire::encode(100, wire::Ping{std::string(100000, 'x')});
    client->send_raw(frame.substr(0, random_() % frame.size()));
  }

  void look(TestClient& client) {
    wire::List list;
    list.limit = 20;
    client.ask<wire::ListReply>(list);
    const wire::Get get = test_get(number_of_a_new_graph());
    client.ask<wire::ExplainReply>(wire::Explain{get.graph, get.target, 0, ""});
    if (random_() % 10 == 0) assert_int_equal(client.ask<wire::VerifyReply>(wire::Verify{}).damaged, 0);
  }

  void talk_nonsense() {
    TestClient client(daemon_.socket(), random_() % 2 == 0);
    std::string bytes(random_() % 2000, 0);
    for (char& byte : bytes) byte = static_cast<char>(random_());
    send(client.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  void kill_a_child() {
    if (Clock::now() < next_kill_) return;
    next_kill_ = Clock::now() + std::chrono::seconds(1);
    const pid_t child = child_named(daemon_.pid(), random_() % 2 ? "fake_worker" : "quern-store");
    if (child > 0 && kill(child, SIGKILL) == 0) ++killed_;
  }

  // Nothing is left of what clients held.
  void settle() {
    clients_.clear();
    const auto client = connect();
    std::printf("%lu actions: %lu hits, %lu misses, %lu evictions, %d kills, %d jobs lost to them\n",
                actions_, hits_, misses_, client->counter("evicted"), killed_, cancelled_);
    for (const char* counter : {"clients", "requests_open"})
      assert_true(eventually([&] { return client->counter(counter) == 1; }));
    for (const char* counter : {"subscriptions", "client_bytes"})
      assert_true(eventually([&] { return client->counter(counter) == 0; }));
    assert_int_equal(client->counter("damaged"), 0);
    held_by(daemon_).print("at the end");
  }

  TestDaemon daemon_;
  std::vector<std::unique_ptr<TestClient>> clients_;
  std::mt19937_64 random_{600};
  std::map<std::pair<int, Tier>, Hash128> known_;
  Hash128 last_key_;
  Clock::time_point next_kill_ = Clock::now();
  int next_graph_ = 0, killed_ = 0, cancelled_ = 0;
  uint64_t actions_ = 0, hits_ = 0, misses_ = 0;
};

void what_is_held_does_not_grow_with_time(void**) {
  const char* seconds = std::getenv("QUERN_SOAK_SECONDS");
  Soak().run(seconds ? std::atof(seconds) : 8);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(what_is_held_does_not_grow_with_time)};
  return cmocka_run_group_tests_name("soak", tests, nullptr, nullptr);
}
