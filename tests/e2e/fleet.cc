#include "tests/e2e/fleet.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>

#include "core/base/hash.h"

namespace quern {

namespace {

std::string find_server() {
  std::istringstream folders(std::string(std::getenv("PATH") ? std::getenv("PATH") : "") + ":/usr/sbin");
  for (std::string folder; std::getline(folders, folder, ':');)
    for (const char* name : {"/valkey-server", "/redis-server"})
      if (access((folder + name).c_str(), X_OK) == 0) return folder + name;
  return "";
}

}  // namespace

RedisServer::RedisServer() : dir(temp_dir()), program_(find_server()) {
  if (program_.empty()) skip_test("needs a server: apt-get install redis-server, or valkey-server");
}

RedisServer::~RedisServer() {
  if (pid_) kill_hard();
}

void RedisServer::start(const std::vector<std::string>& more) {
  std::vector<std::string> words = {program_, "--port",       "0",  "--unixsocket", socket(), "--save",
                                    "",       "--appendonly", "no", "--dir",        dir,      "--loglevel",
                                    "warning"};
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(argv[0], argv.data());
    _exit(127);
  }
  const bool up = eventually([&] {
    const int fd = TestClient::try_connect(socket());
    if (fd >= 0) close(fd);
    return fd >= 0;
  });
  if (!up) fail_test("the server did not start");
}

void RedisServer::kill_hard() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

std::string RedisServer::ask(const std::vector<std::string>& words) const {
  const int fd = TestClient::try_connect(socket());
  if (fd < 0) fail_test("the server is down");
  std::string text = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string& word : words) text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t size = write(fd, text.data() + sent, text.size() - sent);
    if (size <= 0) fail_test("the server takes nothing");
    sent += static_cast<size_t>(size);
  }
  std::string answer;
  size_t wanted = SIZE_MAX, line = std::string::npos;
  char buffer[65536];
  while (answer.size() < wanted) {
    const ssize_t size = read(fd, buffer, sizeof buffer);
    if (size <= 0) fail_test("the server does not answer");
    answer.append(buffer, static_cast<size_t>(size));
    if (line == std::string::npos && (line = answer.find("\r\n")) != std::string::npos) {
      const long length = answer[0] == '$' ? std::atol(answer.c_str() + 1) : -1;
      wanted = length < 0 ? line + 2 : line + 2 + static_cast<size_t>(length) + 2;
    }
  }
  close(fd);
  if (answer[0] == '$') return wanted == line + 2 ? "" : answer.substr(line + 2, wanted - line - 4);
  return answer[0] == '-' ? answer.substr(0, line) : answer.substr(1, line - 1);
}

std::unique_ptr<TestDaemon> fleet_node(const std::string& address, const std::filesystem::path& keys,
                                       const std::string& key) {
  auto node = std::make_unique<TestDaemon>();
  node->arguments = {"--fleet=" + address,
                     "--fleet-key=" + (keys / (key + ".key")).string(),
                     "--fleet-trust=" + (keys / "none").string(),
                     "--searchers=0",
                     "--max-queued-jobs=4096",
                     "--max-requests=4096",
                     "--log-level=info"};
  return node;
}

void wait_up(const TestDaemon& node) {
  TestClient client(node.socket());
  if (!eventually([&] { return client.counter("fleet_up") == 1; })) fail_test("not up:\n" + node.log());
}

bool settled(const TestDaemon& node) {
  TestClient client(node.socket());
  return eventually([&] { return client.counter("fleet_up") == 1 && client.counter("fleet_queued") == 0; });
}

std::vector<wire::PlanReply> ask_all(TestClient& client, int first, int count,
                                     const std::function<wire::Get(int)>& get) {
  std::map<uint64_t, int> asked;
  for (int i = 0; i < count; ++i) asked[client.send(get(first + i))] = i;
  std::vector<wire::PlanReply> answers(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto frame = client.receive();
    if (!frame) fail_test("the daemon closed the connection");
    if (frame->type == static_cast<uint16_t>(wire::MessageType::Error))
      assert_ok(wire::to_status(wire::decode_as<wire::Error>(*frame).value()));
    auto plan = wire::decode_as<wire::PlanReply>(*frame);
    assert_ok(plan);
    answers[static_cast<size_t>(asked.at(frame->request))] = std::move(*plan);
  }
  return answers;
}

double p99_of_hits_ms(TestClient& client, int milliseconds) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
  while (Clock::now() < end) {
    const auto begin = Clock::now();
    const auto plan = client.ask<wire::PlanReply>(test_get(0));
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    assert_int_equal(plan.origin, wire::Origin::hit);
    usleep(500);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() * 99 / 100];
}

std::string fleet_name(const Hash128& key, const char* what) { return "quern:" + to_hex(key) + what; }

}  // namespace quern
