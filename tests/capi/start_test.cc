// Starting the daemon, with the fake one as the program ($FAKE_QUERND).
#include "capi/start.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/support/test.h"

namespace quern {

namespace {

using std::chrono::milliseconds;

Wait in(int ms) { return {std::chrono::steady_clock::now() + milliseconds(ms)}; }

std::string fake_quernd() {
  const char* path = getenv("FAKE_QUERND");
  if (!path) fail_test("FAKE_QUERND is not set");
  return path;
}

// A folder for a socket; ends the daemons that were started there.
struct Place {
  std::filesystem::path dir = temp_dir();
  DaemonOptions options{dir / "run" / "quernd.sock", fake_quernd(), true};

  Place() { setenv("FAKE_QUERND_PIDS", (dir / "pids").c_str(), 1); }
  ~Place() {
    for (const pid_t pid : pids()) kill(pid, SIGTERM);
    unsetenv("FAKE_QUERND_PIDS");
  }
  std::vector<pid_t> pids() const {
    std::vector<pid_t> list;
    if (!std::filesystem::exists(dir / "pids")) return list;
    std::string text = read_test_file(dir / "pids");
    for (char* rest = text.data(); *rest; ++rest) list.push_back(static_cast<pid_t>(strtol(rest, &rest, 10)));
    return list;
  }
};

void starts_one_when_none_runs(void**) {
  Place place;
  assert_ok(connect_daemon(place.options, in(5000)));
  const std::vector<pid_t> pids = place.pids();
  assert_int_equal(pids.size(), 1);
  // In a session of its own, nobody's child, in a folder that nobody else can read.
  assert_int_equal(getpgid(pids[0]) == getpgrp(), 0);
  assert_int_equal(getsid(pids[0]) == getsid(0), 0);
  assert_int_equal(waitpid(-1, nullptr, WNOHANG), -1);
  struct stat info;
  assert_int_equal(stat((place.dir / "run").c_str(), &info), 0);
  assert_int_equal(info.st_mode & 0777, 0700);
  // A second one finds it.
  assert_ok(connect_daemon(place.options, in(5000)));
  assert_int_equal(place.pids().size(), 1);
}

void leaks_no_descriptors_into_the_daemon(void**) {
  Place place;
  const int leaky = dup(1);  // not close-on-exec
  assert_true(leaky > 2);
  assert_ok(connect_daemon(place.options, in(5000)));
  const std::string target = "/proc/" + std::to_string(place.pids().at(0)) + "/fd/";
  for (int fd = 0; fd <= 2; ++fd) {
    const std::string link = std::filesystem::read_symlink(target + std::to_string(fd)).string();
    assert_true(fd < 2 ? link == "/dev/null" : link.starts_with("/memfd:quernd"));
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(target)) {
    const std::string link = std::filesystem::read_symlink(entry.path()).string();
    files += link.starts_with("/") && !link.starts_with("/dev/null") && !link.starts_with("/memfd:quernd");
  }
  assert_int_equal(files, 0);
  close(leaky);
}

void sixty_four_processes_start_exactly_one(void**) {
  Place place;
  setenv("FAKE_QUERND_SLOW_MS", "100", 1);
  auto* go = static_cast<std::atomic<int>*>(
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> children;
  for (int i = 0; i < 64; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      while (!go->load()) usleep(100);
      _exit(connect_daemon(place.options, in(20000)).ok() ? 0 : 1);
    }
    children.push_back(child);
  }
  go->store(1);
  int failures = 0;
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    failures += status != 0;
  }
  unsetenv("FAKE_QUERND_SLOW_MS");
  assert_int_equal(failures, 0);
  assert_int_equal(place.pids().size(), 1);
}

void a_daemon_that_was_killed_is_started_again(void**) {
  Place place;
  assert_ok(connect_daemon(place.options, in(5000)));
  kill(place.pids().at(0), SIGKILL);
  while (connect_socket(place.options.socket).ok()) usleep(1000);
  assert_true(std::filesystem::exists(place.options.socket));  // what it left behind is no obstacle
  assert_ok(connect_daemon(place.options, in(5000)));
  assert_int_equal(place.pids().size(), 2);
}

void says_why_a_daemon_did_not_start(void**) {
  Place place;
  setenv("FAKE_QUERND_FAILS", "1", 1);
  assert_error(connect_daemon(place.options, in(5000)), ErrorCode::NO_DAEMON,
               "it wrote: fake quernd: fails as it was told to");
  unsetenv("FAKE_QUERND_FAILS");

  place.options.program = place.dir / "no-such-program";
  assert_error(connect_daemon(place.options, in(5000)), ErrorCode::NO_DAEMON,
               "no-such-program: No such file");
  place.options.program = fake_quernd();
  setenv("FAKE_QUERND_SLOW_MS", "300", 1);
  assert_error(connect_daemon(place.options, in(50)), ErrorCode::NO_DAEMON, "did not listen in time");
  std::atomic<uint64_t> cancels{0};
  std::thread canceller([&] {
    usleep(50000);
    ++cancels;
  });
  const auto began = std::chrono::steady_clock::now();
  assert_error(connect_daemon(place.options, {began + milliseconds(20000), &cancels, 0}), ErrorCode::CANCELLED);
  assert_true(std::chrono::steady_clock::now() - began < milliseconds(5000));
  canceller.join();
  unsetenv("FAKE_QUERND_SLOW_MS");
  // The slow one comes up after all, and is found instead of a second one being started.
  assert_ok(connect_daemon(place.options, in(5000)));
}

void can_be_turned_off(void**) {
  Place place;
  place.options.start = false;
  assert_error(connect_daemon(place.options, in(5000)), ErrorCode::NO_DAEMON, "starting one was turned off");
  assert_false(std::filesystem::exists(place.dir / "run"));
}

void distrusts_what_others_can_write(void**) {
  Place place;
  std::filesystem::create_directory(place.dir / "run");
  chmod((place.dir / "run").c_str(), 0777);
  assert_error(connect_daemon(place.options, in(5000)), ErrorCode::PERMISSION, "others can write");
  assert_int_equal(place.pids().size(), 0);
}

void finds_the_program(void**) {
  setenv("QUERN_DAEMON", fake_quernd().c_str(), 1);
  const Result<std::string> named = find_daemon();
  assert_ok(named);
  assert_text_equal(*named, fake_quernd());
  setenv("QUERN_DAEMON", "/nowhere/quernd", 1);
  assert_error(find_daemon(), ErrorCode::NO_DAEMON, "$QUERN_DAEMON is not a program: /nowhere/quernd");
  unsetenv("QUERN_DAEMON");

  const std::filesystem::path dir = temp_dir();
  const std::string old_path = getenv("PATH") ? getenv("PATH") : "";
  setenv("PATH", ("/nowhere::" + dir.string()).c_str(), 1);
  // The build folder may hold the real one, which comes first.
  std::filesystem::create_symlink(fake_quernd(), dir / "quernd");
  const Result<std::string> found = find_daemon();
  assert_ok(found);
  assert_true(*found == (dir / "quernd").string() || found->ends_with("/../daemon/quernd"));
  std::filesystem::remove(dir / "quernd");
  const Result<std::string> none = find_daemon();
  if (none.ok())
    assert_contains(*none, "/../daemon/quernd");
  else
    assert_error(none, ErrorCode::NO_DAEMON, "\n  /nowhere/quernd\n  " + dir.string() + "/quernd");
  setenv("PATH", old_path.c_str(), 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(starts_one_when_none_runs),
      cmocka_unit_test(leaks_no_descriptors_into_the_daemon),
      cmocka_unit_test(sixty_four_processes_start_exactly_one),
      cmocka_unit_test(a_daemon_that_was_killed_is_started_again),
      cmocka_unit_test(says_why_a_daemon_did_not_start),
      cmocka_unit_test(can_be_turned_off),
      cmocka_unit_test(distrusts_what_others_can_write),
      cmocka_unit_test(finds_the_program),
  };
  return cmocka_run_group_tests_name("start", tests, nullptr, nullptr);
}
