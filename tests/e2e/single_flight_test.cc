// 64 processes ask for one new key at the same instant: one compile, 64 identical answers.
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "core/base/hash.h"
#include "tests/e2e/fixture.h"

namespace quern {

namespace {

struct Answer {
  Hash128 key, plan;
  uint64_t generation;
  wire::Origin origin;
};

void one_compile_and_64_identical_answers(void**) {
  constexpr int kProcesses = 64;
  TestDaemon daemon;
  daemon.tell_worker("delay_ms", "100");
  daemon.start();
  int barrier[2], ready[2], answers[2];
  assert_true(pipe(barrier) == 0 && pipe(ready) == 0 && pipe(answers) == 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("CMOCKA_TEST_ABORT", "1", 1);  // a failure here ends this process, not only the test
      close(barrier[1]);
      TestClient client(daemon.socket());
      char byte = 'r';
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      while (read(barrier[0], &byte, 1) > 0) {
      }
      const auto plan = client.ask<wire::PlanReply>(test_get(1));
      const Answer answer{plan.key, hash128(plan.plan), plan.generation, plan.origin};
      _exit(write(answers[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
    }
    children.push_back(child);
  }
  close(ready[1]);
  close(answers[1]);
  char byte;
  for (int i = 0; i < kProcesses; ++i) assert_int_equal(read(ready[0], &byte, 1), 1);
  close(barrier[1]);  // now
  std::set<std::pair<Hash128, Hash128>> distinct;
  int compiled = 0;
  for (int i = 0; i < kProcesses; ++i) {
    Answer answer;
    assert_int_equal(read(answers[0], &answer, sizeof answer), sizeof answer);
    distinct.insert({answer.key, answer.plan});
    compiled += answer.origin == wire::Origin::compiled;
    assert_int_equal(answer.generation, 1);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
  }
  assert_int_equal(distinct.size(), 1);
  assert_int_equal(compiled, 1);
  assert_int_equal(daemon.compiles(), 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(one_compile_and_64_identical_answers)};
  return cmocka_run_group_tests_name("single flight", tests, nullptr, nullptr);
}
