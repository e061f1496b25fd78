// What the process that writes to the store can reach.
#include <fcntl.h>

#include <sstream>

#include "tests/cache/fixture.h"

namespace quern {

namespace {

std::string status_of(pid_t process, const std::string& name) {
  std::istringstream in(read_test_file("/proc/" + std::to_string(process) + "/status"));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
  return "";
}

void the_writer_has_the_file_and_its_socket_only(void**) {
  const auto dir = temp_dir();
  const int fd = open("/etc/passwd", O_RDONLY);  // nobody says that a child must not have it
  TestStore test(dir);
  test.open();
  const pid_t writer = engine_process();
  assert_true(writer > 0);
  assert_text_equal(status_of(writer, "NoNewPrivs"), "1");
  const std::string file = std::filesystem::canonical(dir) / kStoreFile;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(writer) + "/fd")) {
    const std::string name = entry.path().filename(), to = std::filesystem::read_symlink(entry.path());
    if (name == "0") assert_true(to.starts_with("socket:"));
    if (name.size() > 1 || name > "2") assert_text_equal(to, file);
  }
  close(fd);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  assert_text_equal(status_of(writer, "Seccomp"), "2");
#endif
}

void what_the_writer_does_not_need_is_refused(void**) {
  const auto dir = temp_dir();
  TestStore test(dir / "cache");
  test.options.engine = FAULTY_STORE_BUILT;
  setenv("QUERN_STORE_TRIES", (dir / "tries").c_str(), 1);
  test.open();
  unsetenv("QUERN_STORE_TRIES");
  assert_ok(test->put_and_wait(test_put(1, test_bytes(1, 100000))));
  assert_true(test->get(test_key(1))->plan == test_bytes(1, 100000));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  std::istringstream tries(read_test_file(dir / "tries"));
  int count = 0;
  for (std::string line; std::getline(tries, line); ++count)
    if (!line.ends_with(": EPERM")) fail_test(line.c_str());
  assert_int_equal(count, 12);
#endif
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_writer_has_the_file_and_its_socket_only),
      cmocka_unit_test(what_the_writer_does_not_need_is_refused),
  };
  return cmocka_run_group_tests_name("isolation", tests, nullptr, nullptr);
}
