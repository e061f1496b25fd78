#include "capi/socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "capi/wire/paths.h"

namespace quern {

namespace {

Status connect_error(const std::string& path, int error) {
  const std::string text = path + ": " + std::strerror(error);
  switch (error) {
    case ENOENT:
    case ECONNREFUSED:
      return Status(ErrorCode::NO_DAEMON, "no daemon listens at " + text);
    case EACCES:
    case EPERM:
      return Status(ErrorCode::PERMISSION, "cannot connect to " + text);
    case EAGAIN:
      return Status(ErrorCode::BUSY, "the daemon has too many connections to accept, at " + text);
    default:
      return Status(ErrorCode::IO, "cannot connect to " + text);
  }
}

// Whoever listens sees the graphs and sends the code that will run: it must be this user, root, or whom the
// user trusts.
Status check_peer(int fd, const std::string& path, const std::vector<uid_t>& trusted) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return Status(ErrorCode::IO, "cannot tell who listens at " + path + ": " + std::strerror(errno));
  if (peer.uid == geteuid() || peer.uid == 0 ||
      std::find(trusted.begin(), trusted.end(), peer.uid) != trusted.end())
    return {};
  return Status(
      ErrorCode::PERMISSION,
      "user " + std::to_string(peer.uid) + " listens at " + path +
          ", who is neither you nor root; set QUERN_SOCKET to a path of yours, or QUERN_TRUST_UIDS to the "
          "users whose daemon you trust");
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Result<Descriptor> connect_socket(const std::string& path) {
  const std::vector<uid_t> trusted = trusted_users();
  if (Status status = check_socket_dir(path, trusted); !status.ok()) {
    if (status.code() != ErrorCode::NOT_FOUND) return status;
    return Status(ErrorCode::NO_DAEMON, "no daemon listens at " + path + ": " + status.message());
  }
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status(ErrorCode::IO, std::string("cannot make a socket: ") + std::strerror(errno));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // A Unix socket connects at once or not at all, so EINTR means that nothing has happened.
  int result;
  do result = connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  while (result != 0 && errno == EINTR);
  if (result != 0) return connect_error(path, errno);
  if (Status status = check_peer(fd.get(), path, trusted); !status.ok()) return status;
  return fd;
}

bool wait_for(int fd, short events, TimePoint deadline) {
  for (;;) {
    const auto left = std::max(deadline - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec limit{static_cast<time_t>(seconds.count()), static_cast<long>((left - seconds).count())};
    pollfd entry{fd, events, 0};
    const int ready = ppoll(&entry, 1, &limit, nullptr);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace quern
