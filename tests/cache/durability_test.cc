// kill -9 in the middle of a put loop: the store opens again, and every acknowledged plan is there and
// intact.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <random>

#include "tests/cache/fixture.h"

namespace quern {

namespace {

constexpr int kRounds = 50;
constexpr int kHotKeys = 5;       // plans that are replaced again and again
constexpr int kMaxInFlight = 32;  // puts that wait for their answer

// What the child says about an acknowledged put: this plan was stored under this key. Written to a pipe in
// one piece.
struct Acknowledgement {
  int32_t key;
  uint32_t version;
};

std::string plan_of(Acknowledgement put) {
  const uint64_t seed = uint64_t(put.key) << 32 | put.version;
  std::string plan(reinterpret_cast<const char*>(&put), sizeof put);
  return plan + test_bytes(seed, 100 + seed * 7919 % 40000);
}

// Puts until it is killed. Every third put replaces a hot plan, the others are new.
[[noreturn]] void put_for_ever(const std::string& directory, int round, int out) {
  TestStore test(directory);
  test.open();
  std::atomic<int> in_flight = 0;
  for (int n = 0;; ++n) {
    Acknowledgement ack = {round * 1000000 + n, 1};
    if (n % 3 == 0) ack = {-1 - n / 3 % kHotKeys, static_cast<uint32_t>(round * 1000000 + n)};
    PlanPut put = test_put(ack.key, plan_of(ack));
    put.force = true;
    while (in_flight >= kMaxInFlight) usleep(50);
    ++in_flight;
    test->put(std::move(put), [&, ack](Result<PutOutcome> outcome) {
      --in_flight;
      if (!outcome.ok() || write(out, &ack, sizeof ack) != sizeof ack) _exit(1);
    });
  }
}

// The newest acknowledged version of every key.
using Acknowledged = std::map<int32_t, uint32_t>;

// Starts a child, kills it `delay_us` after its first acknowledgement, and adds what it has acknowledged.
void run_and_kill(const std::string& directory, int round, int delay_us, Acknowledged& acknowledged) {
  int ends[2];
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) put_for_ever(directory, round, ends[1]);
  close(ends[1]);
  Acknowledgement ack;
  bool first = true;
  while (read(ends[0], &ack, sizeof ack) == sizeof ack) {
    acknowledged[ack.key] = std::max(acknowledged[ack.key], ack.version);
    if (!first) continue;
    first = false;
    usleep(delay_us);
    kill(child, SIGKILL);
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  assert_false(first);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

void check_all(Store& store, const Acknowledged& acknowledged) {
  for (const auto& [key, version] : acknowledged) {
    const auto got = store.get(test_key(key));
    assert_ok(got);
    // A put that was on disk but not yet acknowledged may have come after the acknowledged one.
    Acknowledgement stored;
    got->plan.copy(reinterpret_cast<char*>(&stored), sizeof stored);
    assert_int_equal(stored.key, key);
    assert_true(stored.version >= version);
    assert_true(got->plan == plan_of(stored));
  }
}

void every_acknowledged_plan_survives_kill_9(void**) {
  const std::string directory = temp_dir();
  std::mt19937 random(20240611);
  Acknowledged all;
  for (int round = 0; round < kRounds; ++round) {
    Acknowledged acknowledged;
    run_and_kill(directory, round, std::uniform_int_distribution(0, 30000)(random), acknowledged);
    for (const auto& [key, version] : acknowledged) all[key] = std::max(all[key], version);
    TestStore test(directory);
    check_all(test.open(), acknowledged);
    assert_int_equal(test.reports->take().size(), 0);
  }
  TestStore test(directory);
  check_all(test.open(), all);
  const auto report = test->verify_all();
  assert_ok(report);
  assert_int_equal(report->damage.size(), 0);
  print_message("%zu acknowledged plans in %d rounds\n", all.size(), kRounds);
  assert_true(all.size() > kRounds);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(every_acknowledged_plan_survives_kill_9)};
  return cmocka_run_group_tests_name("cache-durability", tests, nullptr, nullptr);
}
