// quern-store, with faults and a memory of what it wrote. Environment:
//   QUERN_STORE_RECORD   a file that every write and sync of the store's file is appended to
//   (recorded_writes.h) QUERN_STORE_EIO      the number of the write that fails with EIO, and all after it
//   QUERN_STORE_NOMEM    the number of the allocation, after the start, that fails
//   QUERN_STORE_TRIES    a file that says of each thing that quern-store has no business to do how it went
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "cache/engine_server.h"
#include "tests/cache/recorded_writes.h"

#if defined(_FILE_OFFSET_BITS) && _FILE_OFFSET_BITS == 64
#define OTHER_NAME(name) name
#else
#define OTHER_NAME(name) name "64"
#endif

namespace {

using quern::RecordedWrite;

long number_of(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : 0;
}

struct Faults {
  long eio = number_of("QUERN_STORE_EIO"), no_memory = number_of("QUERN_STORE_NOMEM");
  long writes = 0, allocations = 0;
  bool started = false;
  int record = -1, tries = -1;
} faults;

// As somebody would who has taken the process over, when it has been told to write.
void try_everything() {
  const int file = std::exchange(faults.tries, -1);
  if (file < 0) return;
  const auto tried = [file](const char* what, long result) {
    dprintf(file, "%s: %s\n", what, result >= 0 ? "worked" : strerrorname_np(errno));
  };
  tried("open", syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY));
  tried("open to write", syscall(SYS_openat, AT_FDCWD, "/tmp", O_TMPFILE | O_RDWR, 0600));
  tried("unlink", syscall(SYS_unlink, "/tmp/quern-nothing"));
  tried("rename", syscall(SYS_rename, "/tmp/quern-nothing", "/tmp/quern-other"));
  tried("network socket", syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
  tried("unix socket", syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0));
  tried("fork", syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  char* const arguments[] = {nullptr};
  tried("exec", syscall(SYS_execve, "/bin/true", arguments, arguments));
  tried("signal to the parent", syscall(SYS_kill, getppid(), 0));
  tried("trace the parent", syscall(SYS_ptrace, PTRACE_ATTACH, getppid(), nullptr, nullptr));
  tried("limits of the parent", syscall(SYS_prlimit64, getppid(), RLIMIT_CPU, nullptr, nullptr));
  tried("io_uring", syscall(SYS_io_uring_setup, 1, nullptr));
  close(file);
}

// Pipes and sockets are none of it.
bool is_file(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

void record(RecordedWrite::Kind kind, uint64_t at, const struct iovec* pieces, int count) {
  if (faults.record < 0) return;
  std::string bytes;
  for (int i = 0; i < count; ++i)
    bytes.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
  const std::string encoded = RecordedWrite{kind, at, bytes}.encode();
  if (syscall(SYS_write, faults.record, encoded.data(), encoded.size()) < 0) abort();
}

// False when the write is to fail.
bool allowed() { return faults.eio == 0 || ++faults.writes < faults.eio; }

ssize_t write_at(int fd, const struct iovec* pieces, int count, off_t at) {
  if (!is_file(fd)) return syscall(SYS_pwritev, fd, pieces, count, at, 0);
  if (!allowed()) {
    errno = EIO;
    return -1;
  }
  const ssize_t size = syscall(SYS_pwritev, fd, pieces, count, at, 0);
  // Head pages are written through a descriptor that syncs with every write.
  const bool synced = fcntl(fd, F_GETFL) & O_DSYNC;
  if (size >= 0) record(synced ? RecordedWrite::synced_write : RecordedWrite::write, at, pieces, count);
  return size;
}

}  // namespace

extern "C" {

// These have two names each, for offsets of 32 and of 64 bits, which are the same here; the headers may give
// either to what is written below.
ssize_t other_pwrite(int, const void*, size_t, off_t) __asm__(OTHER_NAME("pwrite"));
ssize_t other_pwrite(int fd, const void* bytes, size_t size, off_t at) { return pwrite(fd, bytes, size, at); }
ssize_t other_pwritev(int, const struct iovec*, int, off_t) __asm__(OTHER_NAME("pwritev"));
ssize_t other_pwritev(int fd, const struct iovec* pieces, int count, off_t at) {
  return write_at(fd, pieces, count, at);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  const struct iovec piece = {const_cast<void*>(bytes), size};
  return write_at(fd, &piece, 1, at);
}
ssize_t pwritev(int fd, const struct iovec* pieces, int count, off_t at) {
  return write_at(fd, pieces, count, at);
}
ssize_t writev(int fd, const struct iovec* pieces, int count) {
  const off_t at = lseek(fd, 0, SEEK_CUR);
  if (!is_file(fd) || at < 0) return syscall(SYS_writev, fd, pieces, count);
  const ssize_t size = write_at(fd, pieces, count, at);
  if (size > 0) lseek(fd, at + size, SEEK_SET);
  return size;
}
int fdatasync(int fd) {
  try_everything();
  const int failed = static_cast<int>(syscall(SYS_fdatasync, fd));
  if (!failed && is_file(fd)) record(RecordedWrite::sync, 0, nullptr, 0);
  return failed;
}
int fsync(int fd) { return fdatasync(fd); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* __libc_malloc(size_t size);
void* malloc(size_t size) {
  if (faults.started && faults.no_memory > 0 && ++faults.allocations == faults.no_memory) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(size);
}
#endif

}  // extern "C"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  signal(SIGPIPE, SIG_IGN);
  if (const char* file = std::getenv("QUERN_STORE_RECORD"))
    faults.record = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (const char* file = std::getenv("QUERN_STORE_TRIES"))
    faults.tries = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  faults.started = true;
  return quern::serve_engine(
      {argv[1], std::strtoull(argv[2], nullptr, 10), std::strcmp(argv[3], "durable") == 0}, 0);
}
