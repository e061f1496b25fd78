// The client's end of the daemon's Unix socket.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "core/base/status.h"

namespace quern {

using TimePoint = std::chrono::steady_clock::time_point;

// How long a call may wait for the daemon: until a moment, or until the client is cancelled.
struct Wait {
  TimePoint deadline;
  const std::atomic<uint64_t>* cancels = nullptr;  // of the client; null: nobody can cancel
  uint64_t cancels_before = 0;                     // when the call began

  bool cancelled() const {
    return cancels && cancels->load(std::memory_order_relaxed) != cancels_before;
  }
};

// An owned descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Connects to the socket at `path`; the result does not block and is not inherited by programs that are
// executed. Never waits. NO_DAEMON when nobody listens there, PERMISSION when the directory or the listener
// (SO_PEERCRED) is somebody else's, BUSY when the daemon has too many connections to accept,
// INVALID_ARGUMENT, IO.
Result<Descriptor> connect_socket(const std::string& path);

// Waits until one of poll's `events` or an error holds for `fd`: false when `deadline` came first. Signals do
// not end it.
bool wait_for(int fd, short events, TimePoint deadline);

}  // namespace quern
