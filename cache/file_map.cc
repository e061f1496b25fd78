#include "cache/file_map.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

namespace quern {

namespace {

// Where a fault of this thread goes on, while it copies out of a mapping. Volatile, because only the handler
// sees it in between.
thread_local sigjmp_buf* volatile fault_exit = nullptr;
struct sigaction other_handler;

void on_fault(int number, siginfo_t* info, void* context) {
  if (fault_exit) siglongjmp(*fault_exit, 1);
  // Not ours: as if this handler were not there.
  if (other_handler.sa_flags & SA_SIGINFO) return other_handler.sa_sigaction(number, info, context);
  if (other_handler.sa_handler != SIG_DFL && other_handler.sa_handler != SIG_IGN)
    return other_handler.sa_handler(number);
  signal(number, SIG_DFL);
}

// Whoever has taken the signal since the last time gets what is not ours.
void catch_faults() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  struct sigaction now = {};
  sigaction(SIGBUS, nullptr, &now);
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault) return;
  other_handler = now;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  // NODEFER, so that the jump needs to restore no mask.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigaction(SIGBUS, &action, nullptr);
}

// Nothing here has a destructor, so a jump out of the copy skips none.
bool guarded_copy(void* to, const void* from, size_t size) {
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    fault_exit = nullptr;
    return false;
  }
  fault_exit = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(to, from, size);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  fault_exit = nullptr;
  return true;
}

bool read_fully(int fd, uint64_t at, size_t size, char* to) {
  while (size > 0) {
    const ssize_t got = pread(fd, to, size, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += static_cast<uint64_t>(got);
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

Result<std::shared_ptr<const FileMap>> FileMap::map(int fd, uint64_t bytes) {
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0)
    return Status(errno == EMFILE ? ErrorCode::LIMIT : ErrorCode::IO,
                  std::string("cannot map the cache: ") + std::strerror(errno) +
                      (errno == EMFILE ? "; raise the limit of open files (ulimit -n)" : ""));
  catch_faults();
  std::shared_ptr<FileMap> map(new FileMap(own, bytes));
  void* start = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, own, 0);
  if (start != MAP_FAILED) map->start_ = static_cast<const char*>(start);
  return std::shared_ptr<const FileMap>(std::move(map));
}

FileMap::~FileMap() {
  if (start_) munmap(const_cast<char*>(start_), bytes_);
  close(fd_);
}

bool FileMap::read(uint64_t at, size_t size, void* to) const {
  if (size > bytes_ || at > bytes_ - size) return false;
  return start_ ? guarded_copy(to, start_ + at, size) : read_fully(fd_, at, size, static_cast<char*>(to));
}

}  // namespace quern
