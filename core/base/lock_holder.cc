#include "core/base/lock_holder.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace quern {

// A line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 123 fd:01:4567 0 EOF", the device in hexadecimal digits.
std::string lock_holder(int fd) {
  struct stat info;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> locks(std::fopen("/proc/locks", "re"), &std::fclose);
  char line[256];
  while (locks && fstat(fd, &info) == 0 && std::fgets(line, sizeof line, locks.get())) {
    int process = 0;
    unsigned major_number = 0, minor_number = 0;
    unsigned long inode = 0;
    if (std::sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%lu", &process, &major_number, &minor_number,
                    &inode) == 4 &&
        process > 0 && inode == info.st_ino && major_number == major(info.st_dev) &&
        minor_number == minor(info.st_dev))
      return "process " + std::to_string(process);
  }
  // Not every file system and container shows its locks there; who locks also writes down who it is.
  char text[32] = {};
  const int written = pread(fd, text, sizeof text - 1, 0) > 0 ? std::atoi(text) : 0;
  return written > 0 && kill(written, 0) == 0 ? "process " + std::to_string(written) : "another process";
}

}  // namespace quern
