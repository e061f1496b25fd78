// What an isolated worker can still do, and what it cannot. Each try is a process of its own.
#include "daemon/isolate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "tests/support/test.h"

namespace quern {

namespace {

enum Outcome { kWorked, kRefused, kOtherError, kNotIsolated };

// `action` returns as a system call does.
Outcome outcome(Confinement confinement, const std::function<long()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    if (!isolate(confinement).ok()) _exit(kNotIsolated);
    errno = 0;
    if (action() >= 0) _exit(kWorked);
    _exit(errno == EPERM || errno == EACCES ? kRefused : kOtherError);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status)) fail_test("the isolated process was killed");
  return static_cast<Outcome>(WEXITSTATUS(status));
}

constexpr Confinement kAll[] = {Confinement::compiles, Confinement::measures, Confinement::uses_gpu};

void network_and_others_are_out_of_reach(void**) {
  const pid_t parent = getpid();
  for (const Confinement each : kAll) {
    assert_int_equal(outcome(each, [] { return socket(AF_INET, SOCK_STREAM, 0); }), kRefused);
    assert_int_equal(outcome(each, [] { return socket(AF_INET6, SOCK_DGRAM, 0); }), kRefused);
    assert_int_equal(outcome(each, [&] { return ptrace(PTRACE_ATTACH, parent, nullptr, nullptr); }),
                     kRefused);
    assert_int_equal(outcome(each, [] { return chmod("/tmp", 01777); }), kRefused);
    assert_int_equal(outcome(each, [] { return syscall(SYS_io_uring_setup, 1, nullptr); }), kRefused);
    assert_int_equal(outcome(each, [] { return fcntl(3, F_GETFD) < 0 && errno == EBADF ? 0 : -1; }), kWorked);
  }
  for (const Confinement each : {Confinement::compiles, Confinement::uses_gpu}) {
    assert_int_equal(outcome(each, [&] { return kill(parent, 0); }), kRefused);
    assert_int_equal(outcome(each, [] { return execl("/bin/true", "true", nullptr); }), kRefused);
  }
  assert_int_equal(outcome(Confinement::compiles, [] { return socket(AF_UNIX, SOCK_STREAM, 0); }), kRefused);
  assert_int_equal(outcome(Confinement::uses_gpu, [] { return socket(AF_UNIX, SOCK_STREAM, 0); }), kWorked);
  assert_int_equal(outcome(Confinement::measures, [] { return execl("/bin/true", "true", nullptr); }),
                   kWorked);
}

void a_compiling_worker_writes_no_file(void**) {
  const auto dir = temp_dir();
  const std::string file = dir / "store";
  write_test_file(file, "precious");
  const auto tries = {
      std::function<long()>([&] { return open((dir / "new").c_str(), O_RDONLY | O_CREAT, 0600); }),
      std::function<long()>([&] { return open(file.c_str(), O_WRONLY); }),
      std::function<long()>([&] { return open(file.c_str(), O_RDWR); }),
      std::function<long()>([&] { return open(file.c_str(), O_RDONLY | O_TRUNC); }),
      std::function<long()>([&] { return open(dir.c_str(), O_TMPFILE | O_RDWR, 0600); }),
      std::function<long()>([&] { return unlink(file.c_str()); }),
      std::function<long()>([&] { return rename(file.c_str(), (dir / "other").c_str()); }),
      std::function<long()>([&] { return truncate(file.c_str(), 0); }),
      std::function<long()>([&] { return mkdir((dir / "sub").c_str(), 0700); }),
      std::function<long()>([&] { return symlink(file.c_str(), (dir / "link").c_str()); })};
  for (const auto& each : tries) assert_int_equal(outcome(Confinement::compiles, each), kRefused);
  assert_text_equal(read_test_file(file), "precious");
  assert_int_equal(outcome(Confinement::compiles, [&] { return open(file.c_str(), O_RDONLY); }), kWorked);
}

void a_worker_with_a_gpu_writes_devices_only(void**) {
  assert_int_equal(outcome(Confinement::uses_gpu, [] { return open("/dev/null", O_RDWR); }), kWorked);
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
    skip_test("this kernel has no Landlock");
  const auto dir = temp_dir();
  write_test_file(dir / "store", "precious");
  for (const Confinement each : {Confinement::measures, Confinement::uses_gpu}) {
    assert_int_equal(outcome(each, [&] { return open((dir / "store").c_str(), O_RDWR); }), kRefused);
    assert_int_equal(outcome(each, [&] { return open((dir / "new").c_str(), O_RDWR | O_CREAT, 0600); }),
                     kRefused);
    assert_int_equal(outcome(each, [&] { return unlink((dir / "store").c_str()); }), kRefused);
    assert_int_equal(outcome(each,
                             [] {
                               const int fd = shm_open("/quern-isolate-test", O_RDWR | O_CREAT, 0600);
                               shm_unlink("/quern-isolate-test");
                               return fd;
                             }),
                     kWorked);
  }
}

void what_work_needs_works(void**) {
  for (const Confinement each : kAll) {
    assert_int_equal(outcome(each,
                             [] {
                               pthread_t thread;
                               const int error = pthread_create(
                                   &thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr);
                               return error ? -1 : -pthread_join(thread, nullptr);
                             }),
                     kWorked);
    assert_int_equal(outcome(each,
                             [] {
                               void* room = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                               return room == MAP_FAILED ? -1 : mprotect(room, 4096, PROT_READ | PROT_EXEC);
                             }),
                     kWorked);
    assert_int_equal(outcome(each, [] { return raise(0); }), kWorked);
    assert_int_equal(outcome(each, [] { return open("/proc/self/maps", O_RDONLY); }), kWorked);
  }
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(network_and_others_are_out_of_reach),
      cmocka_unit_test(a_compiling_worker_writes_no_file),
      cmocka_unit_test(a_worker_with_a_gpu_writes_devices_only),
      cmocka_unit_test(what_work_needs_works),
  };
  return cmocka_run_group_tests_name("isolate", tests, nullptr, nullptr);
}
