// The helpers that other tests lean on: they must be able to fail.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

namespace quern {

namespace {

// The number of failed tests in a group run by a child process, whose output is dropped.
int failures_in_child(void (*body)(void**)) {
  const pid_t child = fork();
  if (child == 0) {
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(100);
    const CMUnitTest tests[] = {cmocka_unit_test(body)};
    _exit(cmocka_run_group_tests(tests, nullptr, nullptr));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void assertions_fail_when_they_should(void**) {
  const Status error(ErrorCode::COMPILE, "line 3");
  assert_int_equal(failures_in_child([](void**) { assert_ok(Status(ErrorCode::IO, "no")); }), 1);
  assert_int_equal(failures_in_child([](void**) { assert_error(Status(), ErrorCode::IO); }), 1);
  assert_int_equal(
      failures_in_child([](void**) { assert_error(Status(ErrorCode::IO, "a"), ErrorCode::IO, "b"); }), 1);
  assert_int_equal(failures_in_child([](void**) { assert_text_equal("a", "b"); }), 1);
  assert_int_equal(failures_in_child([](void**) { assert_contains("abc", "d"); }), 1);
  assert_int_equal(failures_in_child([](void**) { read_test_file("/nowhere/at/all"); }), 1);
  assert_int_equal(failures_in_child([](void**) { skip_test("of a reason"); }), 0);
  assert_ok(Result<int>(1));
  assert_error(Result<int>(error), ErrorCode::COMPILE, "line");
}

void the_root_holds_the_sources(void**) {
  assert_contains(read_test_file(test_root() / "core/base/errors.def"), "QUERN_ERROR(OK, 0,");
}

void temporary_directories_are_private_and_distinct(void**) {
  const std::filesystem::path a = temp_dir(), b = temp_dir();
  assert_true(a != b);
  assert_int_equal(static_cast<unsigned>(std::filesystem::status(a).permissions()), 0700);
  write_test_file(a / "file", std::string("\0x", 2));
  assert_int_equal(read_test_file(a / "file").size(), 2);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(assertions_fail_when_they_should),
      cmocka_unit_test(the_root_holds_the_sources),
      cmocka_unit_test(temporary_directories_are_private_and_distinct),
  };
  return cmocka_run_group_tests_name("support", tests, nullptr, nullptr);
}
