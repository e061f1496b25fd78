// A filter of system calls for this process and all that it starts from here on (seccomp). What is refused
// fails with EPERM.
#pragma once

#include <seccomp.h>

#include <cerrno>
#include <optional>

namespace quern {

class CallFilter {
 public:
  enum class Others : bool { refused, allowed };  // calls that no rule names

  explicit CallFilter(Others others)
      : context_(seccomp_init(others == Others::allowed ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM))),
        failed_(context_ ? 0 : -ENOMEM) {}
  ~CallFilter() {
    if (context_) seccomp_release(context_);
  }
  CallFilter(const CallFilter&) = delete;

  void allow(int call, std::optional<scmp_arg_cmp> when = {}) { add(call, SCMP_ACT_ALLOW, when); }
  void refuse(int call, std::optional<scmp_arg_cmp> when = {}) { add(call, SCMP_ACT_ERRNO(EPERM), when); }
  // Callers fall back to an older call, which can be looked into.
  void deny_knowledge_of(int call) { add(call, SCMP_ACT_ERRNO(ENOSYS), {}); }
  // 0, or an errno. Needs no_new_privs, or root.
  int load() { return failed_ != 0 ? -failed_ : -seccomp_load(context_); }

 private:
  void add(int call, uint32_t action, std::optional<scmp_arg_cmp> when) {
    if (failed_ == 0)
      failed_ = seccomp_rule_add_array(context_, action, call, when ? 1 : 0, when ? &*when : nullptr);
  }

  const scmp_filter_ctx context_;
  int failed_;
};

}  // namespace quern
