#include "daemon/isolate.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/call_filter.h"

namespace quern {

namespace {

// Of no use to any worker.
constexpr int kForbidden[] = {
    // other processes
    SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(pidfd_getfd),
    SCMP_SYS(pidfd_send_signal), SCMP_SYS(rt_sigqueueinfo), SCMP_SYS(rt_tgsigqueueinfo), SCMP_SYS(tkill),
    // the kernel
    SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(io_uring_setup), SCMP_SYS(userfaultfd),
    SCMP_SYS(init_module), SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load), SCMP_SYS(reboot), SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(acct),
    SCMP_SYS(quotactl), SCMP_SYS(settimeofday), SCMP_SYS(clock_settime), SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime), SCMP_SYS(sethostname), SCMP_SYS(setdomainname), SCMP_SYS(iopl), SCMP_SYS(ioperm),
    SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(keyctl), SCMP_SYS(syslog), SCMP_SYS(vhangup),
    // the file system
    SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(setns),
    SCMP_SYS(unshare), SCMP_SYS(open_tree), SCMP_SYS(move_mount), SCMP_SYS(fsopen), SCMP_SYS(fsmount),
    SCMP_SYS(fsconfig), SCMP_SYS(fspick), SCMP_SYS(open_by_handle_at), SCMP_SYS(chmod), SCMP_SYS(fchmod),
    SCMP_SYS(fchmodat), SCMP_SYS(chown), SCMP_SYS(lchown), SCMP_SYS(fchown), SCMP_SYS(fchownat),
    SCMP_SYS(setxattr), SCMP_SYS(lsetxattr), SCMP_SYS(fsetxattr), SCMP_SYS(removexattr),
    SCMP_SYS(lremovexattr), SCMP_SYS(fremovexattr)};

// Beside opening with a flag that says so.
constexpr int kChangesFiles[] = {
    SCMP_SYS(creat),     SCMP_SYS(mkdir),  SCMP_SYS(mkdirat),  SCMP_SYS(mknod),     SCMP_SYS(mknodat),
    SCMP_SYS(rmdir),     SCMP_SYS(unlink), SCMP_SYS(unlinkat), SCMP_SYS(rename),    SCMP_SYS(renameat),
    SCMP_SYS(renameat2), SCMP_SYS(link),   SCMP_SYS(linkat),   SCMP_SYS(symlink),   SCMP_SYS(symlinkat),
    SCMP_SYS(truncate),  SCMP_SYS(utime),  SCMP_SYS(utimes),   SCMP_SYS(utimensat), SCMP_SYS(futimesat)};

void forbid_writing(CallFilter& filter) {
  for (const int call : kChangesFiles) filter.refuse(call);
  filter.deny_knowledge_of(SCMP_SYS(openat2));
  for (const auto& [mask, flag] : {std::pair{O_ACCMODE, O_WRONLY},
                                   {O_ACCMODE, O_RDWR},
                                   {O_CREAT, O_CREAT},
                                   {O_TRUNC, O_TRUNC},
                                   {__O_TMPFILE, __O_TMPFILE}}) {
    const auto bits = static_cast<scmp_datum_t>(mask), value = static_cast<scmp_datum_t>(flag);
    filter.refuse(SCMP_SYS(open), SCMP_A1(SCMP_CMP_MASKED_EQ, bits, value));
    filter.refuse(SCMP_SYS(openat), SCMP_A2(SCMP_CMP_MASKED_EQ, bits, value));
  }
}

int filter_calls(Confinement confinement) {
  CallFilter filter(CallFilter::Others::allowed);
  for (const int call : kForbidden) filter.refuse(call);
  // A driver talks to its daemons over Unix and netlink sockets.
  if (confinement == Confinement::compiles) {
    filter.refuse(SCMP_SYS(socket));
    forbid_writing(filter);
  } else {
    for (const int family : {AF_INET, AF_INET6, AF_PACKET, AF_VSOCK, AF_BLUETOOTH, AF_ALG})
      filter.refuse(SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(family)));
  }
  if (confinement != Confinement::measures) {
    filter.refuse(SCMP_SYS(execve));
    filter.refuse(SCMP_SYS(execveat));
    filter.refuse(SCMP_SYS(kill));
    // abort() sends itself one.
    filter.refuse(SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_NE, static_cast<scmp_datum_t>(getpid())));
  }
  return filter.load();
}

// Lets what lies beneath be written and made.
void allow_beneath(int rules, const char* path, uint64_t access) {
  const int fd = open(path, O_PATH | O_CLOEXEC);
  if (fd < 0) return;
  landlock_path_beneath_attr beneath{};
  beneath.allowed_access = access;
  beneath.parent_fd = fd;
  syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
  close(fd);
}

// 0 where the kernel has no Landlock: nothing is confined by it then.
int confine_writes() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return 0;
  constexpr uint64_t kTruncate = uint64_t{1} << 14;  // since version 3
  uint64_t access = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                    LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                    LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                    LANDLOCK_ACCESS_FS_MAKE_SYM;
  if (version >= 3) access |= kTruncate;
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = access;
  const int rules = static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0));
  if (rules < 0) return errno;
  const uint64_t write = LANDLOCK_ACCESS_FS_WRITE_FILE | (access & kTruncate);
  allow_beneath(rules, "/dev", write);
  allow_beneath(rules, "/proc", write);  // a driver names its threads there
  allow_beneath(rules, "/dev/shm", write | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE);
  const int error = syscall(SYS_landlock_restrict_self, rules, 0) == 0 ? 0 : errno;
  close(rules);
  return error;
}

}  // namespace

Status isolate(Confinement confinement) {
  const auto failed = [](const char* what, int error) {
    return Status(ErrorCode::IO,
                  std::string("a worker cannot be isolated: ") + what + ": " + std::strerror(error));
  };
  close_range(3, ~0u, 0);  // what a kernel without it leaves open, the daemon has closed before
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("no_new_privs", errno);
  if (confinement != Confinement::compiles)
    if (const int error = confine_writes(); error != 0) return failed("Landlock", error);
  if (const int error = filter_calls(confinement); error != 0) return failed("seccomp", error);
  return {};
}

}  // namespace quern
