// Where the socket, the cache and the configuration lie (XDG), the same for the daemon and its clients.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/status.h"

namespace quern {

// $QUERN_SOCKET, else $XDG_RUNTIME_DIR/quern/quernd.sock, else /tmp/quern-UID/quernd.sock.
std::string default_socket_path();
// $QUERN_CACHE_DIR, else $XDG_CACHE_HOME/quern, else ~/.cache/quern (home from $HOME, else from the user
// database).
std::string default_cache_dir();
// $QUERN_CONFIG, else $XDG_CONFIG_HOME/quern/quern.conf, else ~/.config/quern/quern.conf.
std::string default_config_path();

// INVALID_ARGUMENT when `path` is empty or longer than a Unix socket address can hold (107 bytes).
Status check_socket_path(const std::string& path);

// The users in $QUERN_TRUST_UIDS (numbers, separated by commas) whose daemon a client may use beside its own
// user's and root's, such as a service account. What is no number is left out.
std::vector<uid_t> trusted_users();

// Whether the directory of the socket can be trusted: it belongs to this user, to root or to one of
// `trusted`, is not a symbolic link made by somebody else, and nobody else can put files there (a sticky
// directory such as /tmp will do for a path that the user chose, not for the default one). PERMISSION says
// what is wrong and how to mend it, NOT_FOUND that it does not exist.
Status check_socket_dir(const std::string& socket_path, const std::vector<uid_t>& trusted = {});
// The same, after making the directory (mode 0700) if it does not exist. Its parent must exist.
Status make_socket_dir(const std::string& socket_path);

// Makes `path` and what is missing above it, with mode 0700.
Status make_dirs(const std::string& path);

}  // namespace quern
