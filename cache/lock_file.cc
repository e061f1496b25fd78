#include "cache/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "cache/database.h"
#include "core/base/lock_holder.h"
#include "core/base/private_file.h"

namespace quern {

Result<LockFile> LockFile::acquire(const std::string& path, bool exclusive) {
  // Close-on-exec: a worker that outlives its daemon must not keep the lock.
  const int fd = open_private_file(path, exclusive ? O_RDWR | O_CREAT : O_RDONLY);
  if (fd < 0 && !exclusive && (errno == ENOENT || errno == EACCES)) return LockFile(-1);
  if (fd < 0) return storage_error(errno, "cannot open the lock " + path);
  LockFile lock(fd);
  int failed;
  do failed = flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB);
  while (failed && errno == EINTR);
  if (failed && errno == EWOULDBLOCK)
    return Status(ErrorCode::BUSY, "the cache is in use by " + lock_holder(fd) + ", which holds " + path +
                                       "; stop it, or choose another cache directory");
  if (failed) return storage_error(errno, "cannot lock " + path);
  if (exclusive) {
    const std::string text = std::to_string(getpid()) + "\n";
    // For people only, so a full disk does no harm here.
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text.data(), text.size(), 0) < 0) errno = 0;
  }
  return lock;
}

LockFile::~LockFile() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace quern
