// A server under test as a process, on cores of its own.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace quern::serve {

struct Memory {
  double resident_mib = 0, beyond_maps_mib = 0;  // all that is resident; without pages of files
};

class Server {
 public:
  // Starts it on the processors in `cores` (none: wherever) and waits until `socket` answers.
  Server(const std::vector<std::string>& command, std::string socket, const std::vector<int>& cores);
  ~Server();  // SIGTERM, and waits
  Server(const Server&) = delete;

  Memory memory() const;
  double cpu_us() const;                         // that its threads have run
  double start_ms() const { return start_ms_; }  // until it accepted a connection
  const std::string& socket() const { return socket_; }

 private:
  const std::string socket_;
  pid_t pid_ = 0;
  double start_ms_ = 0;
};

// The processors that this process may use.
std::vector<int> allowed_cores();

// This process from here on.
void run_on(const std::vector<int>& cores);

}  // namespace quern::serve
