// kill -9 of the process that has the store open, or of the one that writes for it, amid puts, evictions and
// repair: the store opens again, and every acknowledged plan is there and intact. QUERN_KILL_ROUNDS says how
// many rounds.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <random>

#include "tests/cache/fixture.h"

namespace quern {

namespace {

constexpr int kHotKeys = 5;       // plans that are replaced again and again
constexpr int kMaxInFlight = 32;  // puts that wait for their answer
constexpr int kSacrifice = -100;  // the plan that is damaged, so that there is something to repair
constexpr uint64_t kSmallStore = 3 << 20;

// What goes on while it is killed.
enum Mode { kPuts, kEvictions, kRepair, kWriterKilled };
constexpr int kModes = 4;

int rounds() {
  const char* text = std::getenv("QUERN_KILL_ROUNDS");
  return text ? std::atoi(text) : 160;
}

// What the child says about an acknowledged put: this plan was stored under this key. Written to a pipe in
// one piece.
struct Acknowledgement {
  int32_t key;
  uint32_t version;
};

std::string plan_of(Acknowledgement put) {
  const uint64_t seed = uint64_t(put.key) << 32 | put.version;
  std::string plan(reinterpret_cast<const char*>(&put), sizeof put);
  return plan + test_bytes(seed, put.key == kSacrifice ? 9000 : 100 + seed * 7919 % 40000);
}

// As a search does it: a better plan with what it was made from.
PlanPut put_of(const Acknowledgement& ack) {
  PlanPut put = test_put(ack.key, plan_of(ack));
  put.force = true;
  if (ack.key < 0) {
    put.tier = Tier::modelled;
    put.findings = Findings();
    put.findings->report = test_bytes(ack.version, 300);
    put.programs = test_bytes(ack.version, 2000);
  }
  return put;
}

// Puts until it is killed. Every third put replaces a hot plan, the others are new.
[[noreturn]] void put_for_ever(const std::string& directory, int round, Mode mode, int out) {
  TestStore test(directory);
  if (mode == kEvictions) test.options.max_bytes = kSmallStore;
  test.open();
  // Its pages are found damaged, and the file is rebuilt while it is written to.
  if (mode == kRepair) (void)test->get(test_key(kSacrifice));
  std::atomic<int> in_flight = 0;
  for (int n = 0;; ++n) {
    Acknowledgement ack = {round * 100000 + n, 1};
    if (n % 3 == 0) ack = {-1 - n / 3 % kHotKeys, static_cast<uint32_t>(round * 100000 + n)};
    while (in_flight >= kMaxInFlight) usleep(50);
    ++in_flight;
    test->put(put_of(ack), [&, ack](Result<PutOutcome> outcome) {
      --in_flight;
      // Killed again at every try, the writer lets a put fail: nobody is told that it is there.
      if (mode == kWriterKilled && outcome.status().code() == ErrorCode::CANCELLED) return;
      if (!outcome.ok()) std::fprintf(stderr, "%s\n", outcome.status().message().c_str());
      if (!outcome.ok() || write(out, &ack, sizeof ack) != sizeof ack) _exit(1);
    });
  }
}

// Overwrites the head of the plan's own pages; no other plan has a part in them.
void damage_sacrifice(const std::string& directory, uint32_t version) {
  const std::string path = directory + "/" + kStoreFile;
  const std::string mark = plan_of({kSacrifice, version}).substr(0, 64);
  std::string bytes = read_test_file(path);
  const size_t at = bytes.find(mark);
  assert_true(at != std::string::npos);
  const size_t page = at / 4096 * 4096;
  bytes.replace(page, 16, std::string(16, '\xee'));
  write_test_file(path, bytes);
}

// The newest acknowledged version of every key, and in which order the last ones came.
struct Acknowledged {
  std::map<int32_t, uint32_t> newest;
  std::vector<int32_t> order;
  void add(const Acknowledgement& ack) {
    newest[ack.key] = std::max(newest[ack.key], ack.version);
    order.push_back(ack.key);
  }
};

// Starts a child, kills it `delay_us` after its first acknowledgement, and adds what it has acknowledged.
void run_and_kill(const std::string& directory, int round, Mode mode, int delay_us,
                  Acknowledged& acknowledged) {
  int ends[2];
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) put_for_ever(directory, round, mode, ends[1]);
  close(ends[1]);
  const auto pause = [&] { usleep(static_cast<useconds_t>(delay_us)); };
  bool first = true;
  // A repair comes before the first acknowledgement.
  if (mode == kRepair) pause(), pause(), kill(child, SIGKILL);
  Acknowledgement ack;
  while (read(ends[0], &ack, sizeof ack) == sizeof ack) {
    acknowledged.add(ack);
    if (!std::exchange(first, false) || mode == kRepair) continue;
    // What writes for it may be killed alone: it goes on.
    for (int i = 0; mode == kWriterKilled && i < 3; ++i) {
      pause();
      if (const pid_t writer = engine_process(child)) kill(writer, SIGKILL);
    }
    pause();
    kill(child, SIGKILL);
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  assert_true(mode == kRepair || !first);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

void check_one(Store& store, int32_t key, uint32_t version) {
  const auto got = store.get(test_key(key));
  assert_ok(got);
  // A put that was on disk but not yet acknowledged may have come after the acknowledged one.
  Acknowledgement stored;
  got->plan.copy(reinterpret_cast<char*>(&stored), sizeof stored);
  assert_int_equal(stored.key, key);
  assert_true(stored.version >= version);
  assert_true(got->plan == plan_of(stored));
}

// Of what was evicted on purpose only the last ones can be asked for.
void check_all(Store& store, const Acknowledged& acknowledged, bool evicted) {
  if (!evicted) {
    for (const auto& [key, version] : acknowledged.newest) check_one(store, key, version);
    return;
  }
  const size_t count = acknowledged.order.size(), first = count > 40 ? count - 40 : 0;
  for (size_t i = first; i < count; ++i)
    check_one(store, acknowledged.order[i], acknowledged.newest.at(acknowledged.order[i]));
}

void every_acknowledged_plan_survives_kill_9(void**) {
  std::mt19937 random(20240611);
  size_t plans = 0;
  for (int mode = 0; mode < kModes; ++mode) {
    const std::string directory = temp_dir();
    Acknowledged all;
    for (int round = 0; round < rounds() / kModes; ++round) {
      if (mode == kRepair) {
        TestStore test(directory);
        test.open();
        const auto version = static_cast<uint32_t>(round + 1);
        assert_ok(test->put_and_wait(put_of({kSacrifice, version})));
        test.store.reset();
        damage_sacrifice(directory, version);
      }
      const int delay_us = std::uniform_int_distribution(0, 30000)(random);
      run_and_kill(directory, round, static_cast<Mode>(mode), delay_us, all);
      TestStore test(directory);
      if (mode == kEvictions) test.options.max_bytes = kSmallStore;
      test.open();
      check_all(*test.store, all, mode == kEvictions);
      // The damage may be found only now.
      if (mode != kRepair) assert_int_equal(test.reports->take().size(), 0);
    }
    TestStore test(directory);
    test.open();
    (void)test->get(test_key(kSacrifice));
    const auto report = test->verify_all();
    assert_ok(report);
    if (mode != kRepair) assert_int_equal(report->damage.size(), 0);
    plans += all.newest.size();
  }
  print_message("%zu acknowledged plans in %d rounds\n", plans, rounds());
  assert_true(plans > 200);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(every_acknowledged_plan_survives_kill_9)};
  return cmocka_run_group_tests_name("cache-durability", tests, nullptr, nullptr);
}
