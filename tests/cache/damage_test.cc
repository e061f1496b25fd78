// A damaged file, found at the start or done under the open store: no death, no loop, no wrong plan, and
// afterwards the store stores again. QUERN_DAMAGE_ROUNDS says how many rounds.
#include "tests/cache/damage.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/cache/fixture.h"

namespace quern {

namespace {

constexpr int kSmall = 250, kLarge = 30, kNew = 100000;
constexpr unsigned kLimitSeconds = 30;  // for a round of a tenth of a second

std::string plan_of(int number) {
  return test_bytes(number, number < kSmall ? 300 : 5000 + number * 97 % 40000);
}

int rounds() {
  const char* text = std::getenv("QUERN_DAMAGE_ROUNDS");
  return text ? std::atoi(text) : 200;
}

PlanPut full_put(int number) {
  PlanPut put = test_put(number, plan_of(number));
  put.request = request_key("request " + std::to_string(number), "nvrtc");
  put.timings = {test_timing("H200", 10), test_timing("H100", 20)};
  put.programs = test_bytes(number, 400);
  put.program = Hash128{};
  Findings findings;
  findings.report = test_bytes(number, 200);
  put.findings = findings;
  return put;
}

// Trees of several levels, large values, and free pages.
std::string make_file() {
  TestStore test(temp_dir());
  test.open();
  for (int i = 0; i < kSmall + kLarge; ++i) test->put(full_put(i), {});
  assert_ok(test->flush());
  for (int i = 0; i < kSmall + kLarge; i += 10) {
    test->remove(test_key(i).key());
    assert_ok(test->flush());
  }
  test.store.reset();
  return read_test_file(test.options.directory + "/" + kStoreFile);
}

// How many plans are there; -1 when one is wrong.
int count_plans(Store& store) {
  int found = 0;
  for (int i = 0; i < kSmall + kLarge; ++i) {
    const auto got = i % 2 ? store.get(test_key(i))
                           : get_by_request(store, request_key("request " + std::to_string(i), "nvrtc"));
    if (!got.ok()) continue;
    if (got->plan != plan_of(i)) return -1;
    ++found;
  }
  return found;
}

enum Outcome { kGood, kWrong, kNotStored, kNotVerified, kNotOpened, kLost, kStillDamaged };
const char* const kOutcomes[] = {"good",          "a wrong plan", "does not store", "does not verify",
                                 "does not open", "forgets",      "stays damaged"};

// get, put, verify, restart, get.
Outcome live_with_it(TestStore& test, int& found) {
  if ((found = count_plans(*test.store)) < 0) return kWrong;
  if (const auto put = test->put_and_wait(full_put(kNew)); !put.ok()) {
    test.reports->add(put.status().message());
    return kNotStored;
  }
  if (!test->verify_all().ok()) return kNotVerified;
  test.store.reset();
  auto opened = Store::open(test.options);
  if (!opened.ok()) return kNotOpened;
  test.store = std::move(*opened);
  const auto got = test->get(test_key(kNew));
  if (!got.ok() || got->plan != plan_of(kNew)) return kLost;
  if ((found = count_plans(*test.store)) < 0) return kWrong;
  const auto report = test->verify_all();
  if (!report.ok() || !report->damage.empty()) return kStillDamaged;
  return test->put_and_wait(full_put(kNew + 1)).ok() ? kGood : kNotStored;
}

// In a child: whatever it dies of is a failure of this round alone.
void one_round(const std::string& directory, const std::string& file, int round, int& kept) {
  std::mt19937 random(static_cast<unsigned>(round));
  const std::string path = directory + "/" + kStoreFile;
  write_test_file(path, file);
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLimitSeconds);
    std::string what = round % 2 ? damage_file(path, random) : "";
    TestStore test(directory);
    auto opened = Store::open(test.options);
    if (!opened.ok()) _exit(kNotOpened);
    test.store = std::move(*opened);
    if (round % 2 == 0) {
      if (count_plans(*test.store) < 0) _exit(kWrong);
      what = damage_file(path, random);
    }
    int found = 0;
    const Outcome outcome = live_with_it(test, found);
    if (outcome != kGood) {
      std::fprintf(stderr, "round %d: %s\n", round, what.c_str());
      for (const std::string& report : test.reports->take()) std::fprintf(stderr, "  %s\n", report.c_str());
    }
    test.store.reset();
    [[maybe_unused]] const ssize_t size = write(ends[1], &found, sizeof found);
    _exit(outcome);
  }
  close(ends[1]);
  int found = 0, status = 0;
  kept += read(ends[0], &found, sizeof found) == sizeof found ? found : 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kGood) return;
  fail_test("round " + std::to_string(round) + ": " +
            (WIFEXITED(status) ? kOutcomes[WEXITSTATUS(status)]
                               : "died of signal " + std::to_string(WTERMSIG(status))));
}

void damage_ends_nothing(void**) {
  const std::string file = make_file(), directory = temp_dir();
  int kept = 0;
  for (int round = 0; round < rounds(); ++round) one_round(directory, file, round, kept);
  const int plans = (kSmall + kLarge) / 10 * 9;
  print_message("%d rounds on a file of %zu bytes; %.1f %% of its plans were there afterwards\n", rounds(),
                file.size(), 100.0 * kept / plans / rounds());
  // What is damaged in one place is mostly there.
  assert_true(kept > plans / 2 * rounds());
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(damage_ends_nothing)};
  return cmocka_run_group_tests_name("cache-damage", tests, nullptr, nullptr);
}
