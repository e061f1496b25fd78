// What others could have made or can change is not used.
#include "core/base/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test.h"

namespace quern {

namespace {

void directories(void**) {
  const auto dir = temp_dir();
  assert_ok(check_private_directory(dir));
  assert_error(check_private_directory(dir / "none"), ErrorCode::NOT_FOUND);
  chmod(dir.c_str(), 0770);
  assert_error(check_private_directory(dir), ErrorCode::PERMISSION, "chmod 700");
  chmod(dir.c_str(), 01777);
  assert_error(check_private_directory(dir), ErrorCode::PERMISSION, "written by others");
  chmod(dir.c_str(), 0755);
  assert_ok(check_private_directory(dir));
  write_test_file(dir / "file", "");
  assert_error(check_private_directory(dir / "file"), ErrorCode::PERMISSION, "not a directory");
  if (geteuid() != 0) skip_test("only root can give a directory away");
  assert_int_equal(chown(dir.c_str(), 12345, 12345), 0);
  assert_error(check_private_directory(dir), ErrorCode::PERMISSION, "user 12345");
  assert_ok(check_private_directory(dir, {12345}));
}

void files(void**) {
  const auto dir = temp_dir();
  const std::string file = dir / "file", link = dir / "link", twin = dir / "twin";
  assert_ok(check_private_file(file));
  const int made = open_private_file(file, O_RDWR | O_CREAT);
  assert_true(made >= 0 && (fcntl(made, F_GETFD) & FD_CLOEXEC));
  close(made);
  assert_ok(check_private_file(file));
  std::filesystem::create_symlink(file, link);
  assert_error(check_private_file(link), ErrorCode::PERMISSION, "symbolic link");
  assert_int_equal(open_private_file(link, O_RDWR | O_CREAT), -1);
  std::filesystem::create_hard_link(file, twin);
  assert_error(check_private_file(file), ErrorCode::PERMISSION, "another name");
  assert_int_equal(open_private_file(file, O_RDWR), -1);
  std::filesystem::remove(twin);
  chmod(file.c_str(), 0666);
  assert_error(check_private_file(file), ErrorCode::PERMISSION, "written by others");
  assert_error(check_private_file(dir), ErrorCode::PERMISSION, "regular");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(directories), cmocka_unit_test(files)};
  return cmocka_run_group_tests_name("private_file", tests, nullptr, nullptr);
}
