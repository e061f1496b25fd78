// The daemon's listening socket: one daemon for a path, left-over files of dead ones cleared away, closed to
// other users.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace quern {

// Who is at the other end.
struct Peer {
  uid_t user = 0;
  pid_t process = 0;
};
Result<Peer> peer_of(int socket);  // SO_PEERCRED
// The daemon's own user, root, and those in `allowed`.
bool may_connect(const Peer& peer, const std::vector<uid_t>& allowed);

class Listener {
 public:
  // BUSY when another daemon serves the path. Mode 0600, or 0666 when `open_to_all` (the peer's user is
  // checked then).
  static Result<std::unique_ptr<Listener>> open(const std::string& path, bool open_to_all);
  // Removes the socket's file and gives up the path. Does not close the socket.
  ~Listener();

  int fd() const { return fd_; }

 private:
  explicit Listener(std::string path) : path_(std::move(path)) {}
  Status lock();
  Status clear_stale() const;
  Status bind(bool open_to_all);

  const std::string path_;
  int lock_ = -1;  // held as long as this lives: who has it owns the path
  int fd_ = -1;
};

}  // namespace quern
