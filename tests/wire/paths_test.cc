// Where things lie, and which directories can be trusted.
#include "capi/wire/paths.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test.h"

namespace quern {

namespace {

int clean_environment(void**) {
  for (const char* name : {"QUERN_SOCKET", "QUERN_CACHE_DIR", "QUERN_CONFIG", "XDG_RUNTIME_DIR",
                           "XDG_CACHE_HOME", "XDG_CONFIG_HOME"})
    unsetenv(name);
  setenv("HOME", "/home/miller", 1);
  return 0;
}

void paths_follow_the_environment(void**) {
  assert_text_equal(default_socket_path(), "/tmp/quern-" + std::to_string(geteuid()) + "/quernd.sock");
  assert_text_equal(default_cache_dir(), "/home/miller/.cache/quern");
  assert_text_equal(default_config_path(), "/home/miller/.config/quern/quern.conf");
  setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
  setenv("XDG_CACHE_HOME", "/var/x", 1);
  setenv("XDG_CONFIG_HOME", "relative", 1);  // must be ignored
  assert_text_equal(default_socket_path(), "/run/user/1000/quern/quernd.sock");
  assert_text_equal(default_cache_dir(), "/var/x/quern");
  assert_text_equal(default_config_path(), "/home/miller/.config/quern/quern.conf");
  setenv("QUERN_SOCKET", "/a", 1);
  setenv("QUERN_CACHE_DIR", "/b", 1);
  setenv("QUERN_CONFIG", "/c", 1);
  assert_text_equal(default_socket_path(), "/a");
  assert_text_equal(default_cache_dir(), "/b");
  assert_text_equal(default_config_path(), "/c");
}

void socket_paths_have_a_length(void**) {
  assert_ok(check_socket_path("/" + std::string(106, 'x')));
  assert_error(check_socket_path("/" + std::string(107, 'x')), ErrorCode::INVALID_ARGUMENT, "QUERN_SOCKET");
  assert_error(check_socket_path(""), ErrorCode::INVALID_ARGUMENT);
}

void socket_directories_are_made_private(void**) {
  const std::string dir = temp_dir() / "quern";
  assert_error(check_socket_dir(dir + "/s"), ErrorCode::NOT_FOUND);
  assert_ok(make_socket_dir(dir + "/s"));
  struct stat info;
  assert_int_equal(stat(dir.c_str(), &info), 0);
  assert_int_equal(info.st_mode & 07777, 0700);
  assert_ok(make_socket_dir(dir + "/s"));
  chmod(dir.c_str(), 0770);
  assert_error(make_socket_dir(dir + "/s"), ErrorCode::PERMISSION, "chmod 700 " + dir);
  chmod(dir.c_str(), 01777);  // as /tmp is
  assert_ok(make_socket_dir(dir + "/s"));
  assert_error(make_socket_dir(dir + "/no/no/s"), ErrorCode::IO);
  write_test_file(dir + "/file", "");
  assert_error(make_socket_dir(dir + "/file/s"), ErrorCode::PERMISSION, "not a directory");
}

void directories_of_others_are_refused(void**) {
  if (geteuid() != 0) skip_test("only root can give a directory away");
  const std::string dir = temp_dir() / "theirs";
  mkdir(dir.c_str(), 0700);
  if (chown(dir.c_str(), 12345, 12345) != 0) skip_test("this file system has no owners");
  assert_error(check_socket_dir(dir + "/s"), ErrorCode::PERMISSION, "belongs to user 12345");
  assert_ok(check_socket_dir(dir + "/s", {7, 12345}));
  setenv("QUERN_TRUST_UIDS", "7,,x,12345,-1", 1);
  assert_true((trusted_users() == std::vector<uid_t>{7, 12345}));
  unsetenv("QUERN_TRUST_UIDS");
  assert_true(trusted_users().empty());
}

void cache_directories_are_made_with_their_parents(void**) {
  const std::string dir = temp_dir();
  assert_ok(make_dirs(dir + "/a/b/c"));
  assert_ok(make_dirs(dir + "/a/b/c"));
  struct stat info;
  assert_int_equal(stat((dir + "/a/b").c_str(), &info), 0);
  assert_int_equal(info.st_mode & 07777, 0700);
  write_test_file(dir + "/file", "");
  assert_error(make_dirs(dir + "/file"), ErrorCode::IO, "not a directory");
  assert_error(make_dirs(dir + "/file/x"), ErrorCode::IO);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup(paths_follow_the_environment, clean_environment),
      cmocka_unit_test(socket_paths_have_a_length),
      cmocka_unit_test(socket_directories_are_made_private),
      cmocka_unit_test(directories_of_others_are_refused),
      cmocka_unit_test(cache_directories_are_made_with_their_parents),
  };
  return cmocka_run_group_tests_name("paths", tests, nullptr, nullptr);
}
