#include "cache/isolate_engine.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/call_filter.h"

namespace quern {

namespace {

constexpr int kNeeded[] = {
    // the socket, the file, and standard error
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(pread64), SCMP_SYS(preadv),
    SCMP_SYS(pwrite64), SCMP_SYS(pwritev), SCMP_SYS(recvfrom), SCMP_SYS(sendto), SCMP_SYS(lseek),
    SCMP_SYS(fsync), SCMP_SYS(fdatasync), SCMP_SYS(msync), SCMP_SYS(fallocate), SCMP_SYS(ftruncate),
    SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(fstatfs), SCMP_SYS(fcntl), SCMP_SYS(flock),
    SCMP_SYS(close),
    // memory
    SCMP_SYS(brk), SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(mprotect), SCMP_SYS(madvise),
    SCMP_SYS(getrandom),
    // limits, time, and the end
    SCMP_SYS(getrusage), SCMP_SYS(clock_gettime), SCMP_SYS(clock_nanosleep), SCMP_SYS(futex),
    SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall), SCMP_SYS(exit), SCMP_SYS(exit_group)};

}  // namespace

int isolate_engine() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
// Sanitizers open, start and map what they like.
#ifndef QUERN_SANITIZED
  CallFilter filter(CallFilter::Others::refused);
  for (const int call : kNeeded) filter.allow(call);
  // Limits of this process, and signals to it: abort() sends one.
  filter.allow(SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_EQ, 0));
  filter.allow(SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(getpid())));
  return filter.load();
#else
  return 0;
#endif
}

}  // namespace quern
