// Connecting to the daemon, and starting it when none is running.
#pragma once

#include <string>
#include <vector>

#include "capi/socket.h"

namespace quern {

struct DaemonOptions {
  std::string socket;   // path; "" = default_socket_path()
  std::string program;  // to start; "" = find_daemon()
  bool start = true;    // when none is running
};

// The program to start: $QUERN_DAEMON if it is set, else quernd beside the file that holds this code or
// beside the running program (its own folder, ../bin, ../../bin, and ../daemon in a build folder), else in
// $PATH. NO_DAEMON with every place that was tried.
Result<std::string> find_daemon();

// A connection to the daemon. With options.start, of any number of processes that call it at once exactly one
// starts the daemon, under a lock file beside the socket; all wait until it accepts connections. The daemon
// runs in a session of its own with $QUERN_SOCKET set, and writes its standard error to a file beside the
// socket. NO_DAEMON with what was tried; CANCELLED; else the errors of connect_socket.
Result<Descriptor> connect_daemon(const DaemonOptions& options, const Wait& wait);

}  // namespace quern
