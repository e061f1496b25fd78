#include "tests/e2e/fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>

#include "tests/daemon/fake_plan.h"

namespace quern {

namespace {

// Beside the tests in the build folder, or where the bundle has put them.
std::string program(const char* variable, const char* built) {
  const char* path = std::getenv(variable);
  return path ? path : built;
}

}  // namespace

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    usleep(5000);
  }
  return false;
}

wire::Get test_get(int number, uint32_t flags) {
  wire::Get get;
  get.graph = test_graph(number);
  get.target = "sm_90a";
  get.flags = flags;
  return get;
}

int TestClient::try_connect(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const timeval limit{20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

TestClient::TestClient(const std::string& socket, bool greet) : fd_(try_connect(socket)) {
  if (fd_ < 0) fail_test("cannot connect to " + socket + ": " + std::strerror(errno));
  if (!greet) return;
  wire::Hello hello;
  hello.version_low = hello.version_high = wire::kProtocolVersion;
  hello.software = "test";
  assert_int_equal(ask<wire::Welcome>(hello).version, wire::kProtocolVersion);
}

TestClient::~TestClient() { close(fd_); }

void TestClient::send_raw(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the next receive() tells
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::optional<wire::Frame> TestClient::receive() {
  char buffer[65536];
  for (;;) {
    auto frame = reader_.next();
    assert_ok(frame);
    if (*frame) return **frame;
    const ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
    if (size < 0 && errno == EAGAIN) fail_test("no answer within 20 seconds");
    if (size <= 0) return std::nullopt;
    reader_.append({buffer, static_cast<size_t>(size)});
  }
}

uint64_t TestClient::counter(const std::string& name) {
  for (const auto& counter : ask<wire::StatsReply>(wire::Stats{}).counters)
    if (counter.name == name) return counter.value;
  fail_test("no counter " + name);
  return 0;
}

std::string TestClient::fact(const std::string& name) {
  for (const auto& fact : ask<wire::StatsReply>(wire::Stats{}).facts)
    if (fact.name == name) return fact.text;
  fail_test("no fact " + name);
  return "";
}

bool TestClient::closed_by_daemon() {
  char buffer[65536];
  for (;;) {
    const ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
    if (size == 0 || (size < 0 && errno == ECONNRESET)) return true;
    if (size < 0) return false;
  }
}

TestDaemon::TestDaemon() : dir(temp_dir()) { std::filesystem::create_directory(dir / "fake"); }

TestDaemon::~TestDaemon() {
  if (pid_) kill_hard();
}

pid_t TestDaemon::spawn(const std::string& output) const {
  std::vector<std::string> words = {
      program("QUERND", QUERND_BUILT),
      "--foreground",
      "--socket=" + socket(),
      "--cache-dir=" + path("cache"),
      "--workers=2",
      "--log-level=debug",
      "--worker=" + (worker.empty() ? program("QUERN_FAKE_WORKER", FAKE_WORKER_BUILT) : worker)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string fake = path("fake");
  const pid_t child = fork();
  if (child != 0) return child;
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  dup2(file, 1);
  dup2(file, 2);
  setenv("QUERN_FAKE_DIR", fake.c_str(), 1);
  setenv("QUERN_CONFIG", "/dev/null", 1);
  const rlimit files{max_files, max_files};
  if (max_files) setrlimit(RLIMIT_NOFILE, &files);
  if (run_as && (setgid(*run_as) != 0 || setuid(*run_as) != 0)) _exit(127);
  // A test that fails ends without destructors; its daemons must not outlive it. A daemon in the background
  // leaves this behind.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  execv(argv[0], argv.data());
  _exit(127);
}

void TestDaemon::start_at(const std::string& socket) {
  pid_ = spawn(path("log"));
  listens_at_ = socket;
  const bool up = eventually([&] {
    const int fd = TestClient::try_connect(socket);
    if (fd < 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
    if (fd >= 0) close(fd);
    return fd >= 0 || pid_ == 0;
  });
  if (!up || pid_ == 0) fail_test("the daemon did not start:\n" + log());
}

int TestDaemon::run(std::string& output) {
  const pid_t child = spawn(path("output"));
  int status = 0;
  waitpid(child, &status, 0);
  output = read_test_file(path("output"));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int TestDaemon::wait() {
  int status = -1;
  const bool over = eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!over) fail_test("the daemon does not end:\n" + log());
  ended();
  return status;
}

void TestDaemon::signal(int number) const { kill(pid_, number); }

void TestDaemon::kill_hard() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  ended();
}

// A worker that a killed daemon was just starting has its files, and so its socket, until it becomes the
// other program.
void TestDaemon::ended() {
  pid_ = 0;
  const bool closed = eventually([&] {
    const int fd = TestClient::try_connect(listens_at_);
    if (fd >= 0) close(fd);
    return fd < 0;
  });
  if (!closed) fail_test("the daemon has ended, and somebody listens in its place");
}

size_t TestDaemon::compiles() const {
  std::error_code none;
  const auto size = std::filesystem::file_size(dir / "fake/compiles", none);
  return none ? 0 : size;
}

std::vector<pid_t> TestDaemon::worker_pids() const {
  std::vector<pid_t> pids;
  std::error_code none;
  if (!std::filesystem::exists(dir / "fake/pids", none)) return pids;
  std::istringstream in(read_test_file(dir / "fake/pids"));
  for (pid_t pid; in >> pid;) pids.push_back(pid);
  return pids;
}

std::string TestDaemon::log() const { return read_test_file(path("log")); }

}  // namespace quern
