#include "tools/bench/serve/load.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "capi/wire/messages.h"
#include "tools/bench/serve/fill.h"

namespace quern::serve {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) die(std::string("send: ") + std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

// The size of the whole answer that begins with `bytes`; 0 as long as that cannot be told.
size_t answer_bytes(Protocol protocol, std::string_view bytes) {
  if (protocol == Protocol::quern) {
    if (bytes.size() < wire::kHeaderBytes) return 0;
    uint32_t length;
    std::memcpy(&length, bytes.data(), sizeof length);
    return wire::kHeaderBytes + length;
  }
  const size_t line = bytes.find("\r\n");
  if (line == std::string_view::npos) return 0;
  if (bytes[0] != '$') return line + 2;
  const long length = std::strtol(bytes.data() + 1, nullptr, 10);
  return length < 0 ? line + 2 : line + 2 + static_cast<size_t>(length) + 2;
}

class Caller {
 public:
  Caller(const Load& load, size_t first) : load_(load), next_(first), fd_(connect_to(load.socket)) {
    if (fd_ < 0) die("cannot connect to " + load.socket + ": " + std::strerror(errno));
    if (load.protocol != Protocol::quern) return;
    wire::Hello hello;
    hello.version_low = hello.version_high = wire::kProtocolVersion;
    send_all(fd_, wire::encode(1, hello));
    while (!take()) {
    }
    in_.clear();
  }
  ~Caller() { close(fd_); }
  Caller(const Caller&) = delete;

  int fd() const { return fd_; }
  void ask() {
    in_.clear();
    asked_ = Clock::now();
    send_all(fd_, load_.requests[next_++ % load_.requests.size()]);
  }
  // Whether the answer is complete.
  bool take() {
    static char buffer[256 << 10];
    const ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
    if (size <= 0) die("the server has hung up");
    in_.append(buffer, static_cast<size_t>(size));
    const size_t whole = answer_bytes(load_.protocol, in_);
    return whole != 0 && in_.size() >= whole;
  }
  double finish() const {
    if (in_.size() < load_.least_bytes)
      die("an answer of " + std::to_string(in_.size()) + " bytes only: " + in_);
    return microseconds(Clock::now() - asked_);
  }

 private:
  const Load& load_;
  size_t next_;
  const int fd_;
  std::string in_;
  Clock::time_point asked_;
};

}  // namespace

void die(const std::string& why) {
  std::fprintf(stderr, "serve: %s\n", why.c_str());
  std::exit(1);
}

int connect_to(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

Measured run_load(const Load& load) {
  std::vector<std::unique_ptr<Caller>> callers;
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < load.clients; ++i) {
    Caller* caller = callers.emplace_back(std::make_unique<Caller>(load, static_cast<size_t>(i))).get();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = caller;
    epoll_ctl(epoll, EPOLL_CTL_ADD, caller->fd(), &event);
  }
  std::vector<double> took;
  const auto start = Clock::now();
  const auto end =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(load.seconds));
  for (auto& caller : callers) caller->ask();
  int open = load.clients;
  while (open > 0) {
    epoll_event events[64];
    const int count = epoll_wait(epoll, events, 64, 10000);
    if (count <= 0) die("no answer within 10 seconds");
    for (int i = 0; i < count; ++i) {
      Caller& caller = *static_cast<Caller*>(events[i].data.ptr);
      if (!caller.take()) continue;
      took.push_back(caller.finish());
      if (Clock::now() < end)
        caller.ask();
      else
        --open;
    }
  }
  const double seconds = microseconds(Clock::now() - start) / 1e6;
  close(epoll);
  std::sort(took.begin(), took.end());
  const auto answers = static_cast<double>(took.size());
  return {took[took.size() / 2], took[took.size() * 99 / 100], answers / seconds, answers};
}

std::string quern_request(uint64_t number) {
  wire::Get get;
  get.graph = graph_text(number);
  get.target = kTarget;
  return wire::encode(number + 1, get);
}

std::string redis_request(uint64_t number) {
  const std::string key = "plan:" + std::to_string(number);
  return "*2\r\n$3\r\nGET\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n";
}

void redis_set(const std::string& socket, uint64_t number, const std::string& value) {
  static const int fd = connect_to(socket);
  if (fd < 0) die("cannot connect to " + socket);
  const std::string key = "plan:" + std::to_string(number);
  send_all(fd, "*3\r\n$3\r\nSET\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n$" +
                   std::to_string(value.size()) + "\r\n" + value + "\r\n");
  char answer[64];
  if (recv(fd, answer, sizeof answer, 0) <= 0 || answer[0] != '+') die("redis does not take a value");
}

}  // namespace quern::serve
