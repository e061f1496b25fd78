#include "core/profile/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "core/base/process.h"

namespace quern {

namespace {

constexpr uint32_t kMostBytes = 1u << 30;  // of a message
// A GPU that runs away is taken from a killed process by the driver, which takes its time.
constexpr std::chrono::seconds kEndLimit{10};

// Waits for the end of a process, and says how it ended.
std::string reap(pid_t pid) {
  const auto limit = std::chrono::steady_clock::now() + kEndLimit;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > limit) return "does not end";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return describe_end(status);
}

bool is_interruption(int error) { return error == EINTR || error == EAGAIN; }

std::string framed(std::string_view message) {
  const auto size = static_cast<uint32_t>(message.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof size).append(message);
}

}  // namespace

Result<std::unique_ptr<Child>> Child::spawn(const std::vector<std::string>& command) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return Status(ErrorCode::UNSUPPORTED, std::string("no socket for a process: ") + std::strerror(errno));
  fcntl(pair[0], F_SETFL, O_NONBLOCK);
  pid_t pid = 0;
  const int error = start_process(command, pair[1], ProcessGroup::inherited, pid);
  close(pair[1]);
  if (error != 0) {
    close(pair[0]);
    return Status(ErrorCode::UNSUPPORTED, "cannot start " + command[0] + ": " + std::strerror(error));
  }
  return std::unique_ptr<Child>(new Child(pid, pair[0]));
}

Child::~Child() {
  close(socket_);
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  reap(pid_);
}

bool Child::wait_for(short events, Deadline deadline) const {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{socket_, events, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (left.count() <= 0) return false;
  }
}

Status Child::gone() {
  const pid_t pid = std::exchange(pid_, 0);
  return Status(ErrorCode::WORKER, "its process " + (pid ? reap(pid) : "is gone"));
}

Result<std::string> Child::call(std::string_view message, Deadline deadline) {
  const auto start = std::chrono::steady_clock::now();
  auto hung = [&] {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    char text[64];
    std::snprintf(text, sizeof text, "it hung: no answer in %.1f s", seconds);
    kill(pid_, SIGKILL);
    reap(std::exchange(pid_, 0));
    return Status(ErrorCode::WORKER, text);
  };
  if (pid_ == 0) return gone();
  const std::string out = framed(message);
  for (size_t sent = 0; sent < out.size();) {
    if (!wait_for(POLLOUT, deadline)) return hung();
    const ssize_t now = send(socket_, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
    if (now > 0)
      sent += static_cast<size_t>(now);
    else if (!is_interruption(errno))
      return gone();
  }
  std::string in;
  uint32_t size = 0;
  while (in.size() < sizeof size || in.size() < sizeof size + size) {
    if (!wait_for(POLLIN, deadline)) return hung();
    char buffer[65536];
    const ssize_t now = recv(socket_, buffer, sizeof buffer, 0);
    if (now > 0)
      in.append(buffer, static_cast<size_t>(now));
    else if (now == 0 || !is_interruption(errno))
      return gone();
    if (in.size() >= sizeof size) std::memcpy(&size, in.data(), sizeof size);
    if (size > kMostBytes) return Status(ErrorCode::WORKER, "its process sent nonsense");
  }
  return in.substr(sizeof size);
}

bool send_message(int socket, std::string_view message) {
  const std::string out = framed(message);
  for (size_t sent = 0; sent < out.size();) {
    const ssize_t now = send(socket, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
    if (now > 0)
      sent += static_cast<size_t>(now);
    else if (errno != EINTR)
      return false;
  }
  return true;
}

bool receive_message(int socket, std::string& message) {
  auto read = [&](char* to, size_t bytes) {
    for (size_t have = 0; have < bytes;) {
      const ssize_t now = recv(socket, to + have, bytes - have, 0);
      if (now > 0)
        have += static_cast<size_t>(now);
      else if (now == 0 || errno != EINTR)
        return false;
    }
    return true;
  };
  uint32_t size = 0;
  if (!read(reinterpret_cast<char*>(&size), sizeof size) || size > kMostBytes) return false;
  message.resize(size);
  return read(message.data(), size);
}

}  // namespace quern
