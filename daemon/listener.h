// The daemon's listening socket: one daemon for a path, left-over files of dead ones cleared away, closed to
// other users.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
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

// The socket that this process was started with ($LISTEN_FDS, $LISTEN_PID: sd_listen_fds(3)); -1 if there is
// none. `path` gets its file. INVALID_ARGUMENT when it is no Unix socket that listens, or there are several.
Result<int> inherited_socket(std::string& path);

class Listener {
 public:
  // Makes the path this process's own, and clears away what a dead daemon left there. BUSY when another one
  // serves it.
  static Result<std::unique_ptr<Listener>> claim(const std::string& path);
  // The same for a socket that listens already, as systemd hands it over: its file is left alone, now and at
  // the end.
  static Result<std::unique_ptr<Listener>> adopt(int socket, const std::string& path);
  // Removes the socket's file and gives up the path.
  ~Listener();

  // From here on clients can connect: everything else must be ready. Mode 0600, or 0666 when `open_to_all`
  // (the peer's user is checked then).
  Status listen(bool open_to_all);
  // Another mode for the socket's file, unless somebody else made it.
  Status open_to(bool all);
  int socket() const { return socket_; }
  // The next connection, which does not block; nothing when nobody waits. Where no descriptor is left for it,
  // it is closed.
  std::optional<int> accept();

 private:
  explicit Listener(std::string path) : path_(std::move(path)) {}
  Status lock();
  Status clear_stale() const;

  const std::string path_;
  int lock_ = -1;  // held as long as this lives: who has it owns the path
  int socket_ = -1;
  bool adopted_ = false;
  int spare_ = -1;  // given up for a moment to close a connection for which there is no other descriptor
};

}  // namespace quern
