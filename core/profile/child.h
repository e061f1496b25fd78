// A child process that answers calls over a socket, its standard input: messages of a u32 length and as many
// bytes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace quern {

class Child {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // UNSUPPORTED when `command` cannot be started. Its output goes to our standard error.
  static Result<std::unique_ptr<Child>> spawn(const std::vector<std::string>& command);
  // Kills it if it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The answer to a message. WORKER when there is none until `deadline` ("hung ...") or the process is gone
  // ("ended ..."); it is of no use afterwards.
  Result<std::string> call(std::string_view message, Deadline deadline);

 private:
  Child(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
  bool wait_for(short events, Deadline deadline) const;
  Status gone();

  pid_t pid_;
  const int socket_;
};

// The same on the child's side: false at the end of the stream.
bool send_message(int socket, std::string_view message);
bool receive_message(int socket, std::string& message);

}  // namespace quern
