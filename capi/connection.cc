#include "capi/connection.h"

#include <errno.h>
#include <sys/socket.h>

#include <cstring>

namespace quern {

namespace {

constexpr size_t kChunkBytes = 64 << 10;

Status disconnected(const char* what) {
  return Status(ErrorCode::DISCONNECTED, std::string("the connection to the daemon was lost: ") + what);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

Connection::Connection(Descriptor socket) : socket_(std::make_shared<Descriptor>(std::move(socket))) {}

Status Connection::flush() {
  size_t sent = 0;
  Status status;
  while (sent < outbox_.size()) {
    // MSG_NOSIGNAL: a daemon that is gone must not end the program by SIGPIPE.
    const ssize_t n = send(socket_->get(), outbox_.data() + sent, outbox_.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      if (!would_block(errno)) status = disconnected(std::strerror(errno));
      break;
    }
  }
  outbox_.erase(0, sent);
  return status;
}

Status Connection::fill() {
  for (;;) {
    const std::span<char> room = frames_.room(kChunkBytes);
    const ssize_t n = recv(socket_->get(), room.data(), room.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && would_block(errno)) return {};
    if (n < 0) return disconnected(std::strerror(errno));
    if (n == 0) return disconnected("it closed the connection");
    frames_.filled(static_cast<size_t>(n));
    // A short read means that nothing is left: one more call would only say so.
    if (static_cast<size_t>(n) < room.size()) return {};
  }
}

}  // namespace quern
