#include "daemon/listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "capi/wire/paths.h"
#include "core/base/lock_holder.h"
#include "core/base/private_file.h"

namespace quern {

namespace {

constexpr int kBacklog = 512;
constexpr int kLockTries = 200, kLockPauseUs = 10000;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());  // check_socket_path() has seen to the length
  return address;
}

Status system_error(const std::string& what) {
  return Status(ErrorCode::IO, what + ": " + std::strerror(errno));
}

bool accepts(const std::string& path) {
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  const bool answered =
      probe >= 0 && connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (probe >= 0) close(probe);
  return answered;
}

}  // namespace

Result<int> inherited_socket(std::string& path) {
  constexpr int kFirst = 3;
  const char *count = std::getenv("LISTEN_FDS"), *process = std::getenv("LISTEN_PID");
  if (!count || !process || std::atol(process) != getpid()) return -1;
  if (std::strcmp(count, "1") != 0)
    return Status(ErrorCode::INVALID_ARGUMENT,
                  std::string("started with ") + count + " sockets (LISTEN_FDS); one is served");
  sockaddr_un address{};
  socklen_t size = sizeof address, flag_size = sizeof(int);
  int listens = 0;
  if (getsockname(kFirst, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sun_family != AF_UNIX || address.sun_path[0] != '/' ||
      getsockopt(kFirst, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag_size) != 0 || !listens)
    return Status(ErrorCode::INVALID_ARGUMENT,
                  "the socket that this was started with (LISTEN_FDS) is no Unix socket that listens");
  fcntl(kFirst, F_SETFD, FD_CLOEXEC);
  fcntl(kFirst, F_SETFL, fcntl(kFirst, F_GETFL) | O_NONBLOCK);
  for (const char* variable : {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}) unsetenv(variable);
  path = std::string(address.sun_path, strnlen(address.sun_path, sizeof address.sun_path));
  return kFirst;
}

Result<Peer> peer_of(int socket) {
  ucred credentials;
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return system_error("cannot tell who connects");
  return Peer{credentials.uid, credentials.pid};
}

bool may_connect(const Peer& peer, const std::vector<uid_t>& allowed) {
  return peer.user == geteuid() || peer.user == 0 ||
         std::find(allowed.begin(), allowed.end(), peer.user) != allowed.end();
}

Result<std::unique_ptr<Listener>> Listener::claim(const std::string& path) {
  if (Status status = make_socket_dir(path); !status.ok()) return status;
  std::unique_ptr<Listener> listener(new Listener(path));
  if (Status status = listener->lock(); !status.ok()) return status;
  if (Status status = listener->clear_stale(); !status.ok()) return status;
  return listener;
}

Result<std::unique_ptr<Listener>> Listener::adopt(int socket, const std::string& path) {
  std::unique_ptr<Listener> listener(new Listener(path));
  if (Status status = listener->lock(); !status.ok()) return status;
  listener->socket_ = socket;
  listener->adopted_ = true;
  return listener;
}

Listener::~Listener() {
  if (socket_ >= 0) {
    if (!adopted_) unlink(path_.c_str());
    close(socket_);
    close(spare_);
  }
  // The lock file stays: to remove it would let two daemons hold locks on two files of one name.
  if (lock_ >= 0) close(lock_);
}

Status Listener::lock() {
  const std::string file = path_ + ".lock";
  lock_ = open_private_file(file, O_RDWR | O_CREAT);
  if (lock_ < 0) return system_error("cannot open the lock file " + file);
  for (int tries = 0; flock(lock_, LOCK_EX | LOCK_NB) != 0; ++tries) {
    // A daemon on its way out accepts nobody while it ends its workers. One killed while it started a worker
    // leaves its lock to that child until the child's exec, a moment later.
    if (accepts(path_) || tries == kLockTries)
      return Status(ErrorCode::BUSY, "another daemon (" + lock_holder(lock_) + ") serves " + path_);
    usleep(kLockPauseUs);
  }
  const std::string process = std::to_string(getpid()) + "\n";
  if (ftruncate(lock_, 0) != 0 || pwrite(lock_, process.data(), process.size(), 0) < 0)
    return system_error("cannot write to the lock file " + file);
  return {};
}

// With the lock in our hands a socket file is a dead daemon's, unless some other program made it.
Status Listener::clear_stale() const {
  struct stat info;
  if (lstat(path_.c_str(), &info) != 0)
    return errno == ENOENT ? Status() : system_error("cannot look at " + path_);
  if (!S_ISSOCK(info.st_mode))
    return Status(ErrorCode::IO, path_ + " exists and is not a socket; remove it or set QUERN_SOCKET");
  if (accepts(path_)) return Status(ErrorCode::BUSY, "another program listens on " + path_);
  return unlink(path_.c_str()) == 0 ? Status() : system_error("cannot remove the stale socket " + path_);
}

Status Listener::listen(bool open_to_all) {
  spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (adopted_) return {};
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return system_error("no socket");
  const sockaddr_un address = address_of(path_);
  // Between bind and chmod nobody else can connect: that needs leave to write, which no sensible umask gives,
  // and a listener.
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (bound && chmod(path_.c_str(), open_to_all ? 0666 : 0600) == 0 && ::listen(fd, kBacklog) == 0) {
    socket_ = fd;
    return {};
  }
  const Status status = system_error("cannot listen on " + path_);
  if (bound) unlink(path_.c_str());
  close(fd);
  return status;
}

Status Listener::open_to(bool all) {
  if (adopted_ || chmod(path_.c_str(), all ? 0666 : 0600) == 0) return {};
  return system_error("cannot change the mode of " + path_);
}

std::optional<int> Listener::accept() {
  for (;;) {
    const int fd = accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) return fd;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if ((errno != EMFILE && errno != ENFILE) || spare_ < 0) return std::nullopt;
    close(spare_);
    if (const int surplus = ::accept(socket_, nullptr, nullptr); surplus >= 0) close(surplus);
    spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
}

}  // namespace quern
