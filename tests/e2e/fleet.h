// A fleet on one machine: a Redis or Valkey server of the test's own, and daemons that share it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/fixture.h"

namespace quern {

// Without persistence, on a Unix socket in a directory of its own.
class RedisServer {
 public:
  // Skips the test where there is neither redis-server nor valkey-server.
  RedisServer();
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;

  void start(const std::vector<std::string>& more = {});
  void kill_hard();
  std::string socket() const { return (dir / "redis").string(); }
  std::string address() const { return "unix:" + socket(); }
  // The answer of one command as text: a bulk string, a status or a number; "" for nothing, "-..." for an
  // error.
  std::string ask(const std::vector<std::string>& words) const;

  std::filesystem::path dir;

 private:
  std::string program_;
  pid_t pid_ = 0;
};

// `key`: nodes of one name sign with one key, and trust only it.
std::unique_ptr<TestDaemon> fleet_node(const std::string& address, const std::filesystem::path& keys,
                                       const std::string& key = "fleet");
// Fails the test if the node does not find its server.
void wait_up(const TestDaemon& node);
// Whether all that the node has is on the server.
bool settled(const TestDaemon& node);
// The answers to `count` graphs from `first` on, asked all at once, in the order of the graphs.
std::vector<wire::PlanReply> ask_all(
    TestClient& client, int first, int count,
    const std::function<wire::Get(int)>& get = [](int number) { return test_get(number); });
// How long hits on graph 0 take, for so long: their 99th percentile. Graph 0 must be stored.
double p99_of_hits_ms(TestClient& client, int milliseconds);
// As the server names it.
std::string fleet_name(const Hash128& key, const char* what = "");

}  // namespace quern
