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

// Whether a signal has ended it that a process does not bring on itself: the system short of memory, an
// operator, a machine that shuts down. One that uses more time or memory than it may gets other signals.
bool is_killed_by_others(int status);

// "exited with status 1", "was killed by signal 9 (Killed)": of a status that waitpid() gave.
std::string describe_end(int status);

}  // namespace quern
