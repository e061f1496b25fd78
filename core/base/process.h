// Starting child processes that talk over a socket, and saying how they ended.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace quern {

enum class ProcessGroup : bool { inherited, own };

// Starts `command`, whose first word is a path. Its standard input is `socket`, its output goes to our
// standard error, and it inherits nothing else; signal handling starts from the default. 0, or an errno.
int start_process(const std::vector<std::string>& command, int socket, ProcessGroup group, pid_t& pid);

// "exited with status 1", "was killed by signal 9 (Killed)": of a status that waitpid() gave.
std::string describe_end(int status);

}  // namespace quern
