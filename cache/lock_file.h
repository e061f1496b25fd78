// The lock that keeps a cache directory to one daemon. The kernel drops it with the process, however that
// ends.
#pragma once

#include <string>
#include <utility>

#include "core/base/status.h"

namespace quern {

class LockFile {
 public:
  // Alone (for writing) or together with other readers. BUSY, naming the process, while another holder is in
  // the way. A reader needs no right to write; where no lock file exists and none can be made, a reader goes
  // without.
  static Result<LockFile> acquire(const std::string& path, bool exclusive);

  LockFile(LockFile&& other) : fd_(std::exchange(other.fd_, -1)) {}
  LockFile& operator=(LockFile&& other) {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~LockFile();

 private:
  explicit LockFile(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace quern
