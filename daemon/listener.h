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
  // Makes the path this process's own, and clears away what a dead daemon left there. BUSY when another one
  // serves it.
  static Result<std::unique_ptr<Listener>> claim(const std::string& path);
  // Removes the socket's file and gives up the path. Does not close the socket.
  ~Listener();

  // From here on clients can connect: everything else must be ready. Mode 0600, or 0666 when `open_to_all`
  // (the peer's user is checked then). The socket is the caller's.
  Result<int> listen(bool open_to_all);

 private:
  explicit Listener(std::string path) : path_(std::move(path)) {}
  Status lock();
  Status clear_stale() const;

  const std::string path_;
  int lock_ = -1;  // held as long as this lives: who has it owns the path
  bool bound_ = false;
};

}  // namespace quern
