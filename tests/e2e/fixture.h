// A real daemon in a directory of its own, and a plain client to talk to it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capi/wire/messages.h"
#include "tests/support/test.h"

namespace quern {

// A blocking connection. Nothing waits longer than 20 seconds.
class TestClient {
 public:
  // Fails the test if it cannot connect; greets unless told not to.
  explicit TestClient(const std::string& socket, bool greet = true);
  TestClient(const TestClient&) = delete;
  ~TestClient();

  static int try_connect(const std::string& socket);  // a file descriptor, or -1 with errno

  int fd() const { return fd_; }
  void send_raw(std::string_view bytes);
  template <class M>
  uint64_t send(const M& message) {
    send_raw(wire::encode(++last_request_, message));
    return last_request_;
  }
  // Nothing at the end of the stream. The payload lives until the next call.
  std::optional<wire::Frame> receive();
  template <class M>
  M receive_as() {
    const auto frame = receive();
    if (!frame) fail_test("the daemon closed the connection");
    if (frame->type == static_cast<uint16_t>(wire::MessageType::Error) &&
        M::kType != wire::MessageType::Error)
      assert_ok(wire::to_status(wire::decode_as<wire::Error>(*frame).value()));
    auto message = wire::decode_as<M>(*frame);
    assert_ok(message);
    return std::move(*message);
  }
  template <class Reply, class M>
  Reply ask(const M& message) {
    send(message);
    return receive_as<Reply>();
  }
  Status error_of(const wire::Get& get) { return wire::to_status(ask<wire::Error>(get)); }
  uint64_t counter(const std::string& name);
  std::string fact(const std::string& name);
  // Whether the daemon closes the connection, whatever it sends before.
  bool closed_by_daemon();

 private:
  int fd_;
  wire::FrameReader reader_;
  uint64_t last_request_ = 0;
};

// Files in `dir`: the socket `s`, the cache `cache`, the log `log`, and `fake`, through which the test talks
// to its fake workers.
class TestDaemon {
 public:
  TestDaemon();
  // Kills it if it runs.
  ~TestDaemon();

  std::vector<std::string> arguments;  // beyond those that every test has
  std::string worker;                  // empty: the fake one
  std::optional<uid_t> run_as;
  uint64_t max_files = 0;  // 0: as many as the test may have

  // Waits until it can be connected to.
  void start() { start_at(socket()); }
  void start_at(const std::string& socket);
  // Runs it to its end and gives its exit status and what it wrote to standard error.
  int run(std::string& output);
  // Waits for the process and gives its wait status.
  int wait();
  void signal(int number) const;
  void kill_hard();
  pid_t pid() const { return pid_; }

  std::string path(const std::string& name) const { return (dir / name).string(); }
  std::string socket() const { return path("s"); }
  void tell_worker(const std::string& name, const std::string& text) const {
    write_test_file(dir / "fake" / name, text);
  }
  size_t compiles() const;
  std::vector<pid_t> worker_pids() const;
  std::string log() const;

  std::filesystem::path dir;

 private:
  pid_t spawn(const std::string& output) const;
  void ended();
  pid_t pid_ = 0;
  std::string listens_at_;
};

wire::Get test_get(int number, uint32_t flags = 0);
// Polls until `holds`, at most 10 seconds.
bool eventually(const std::function<bool()>& holds);

}  // namespace quern
