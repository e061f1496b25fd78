// Runs a measurement in a process of its own, so that its processor time and its peak of memory are those of
// nothing else.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <type_traits>

#include "tools/bench/need.h"

namespace quern {

struct Usage {
  double cpu_s = 0, wall_s = 0;
  double peak_mib = 0;
};

namespace internal {
inline Usage wait_for(pid_t child) {
  int state = 0;
  struct rusage used;
  if (wait4(child, &state, 0, &used) != child || !WIFEXITED(state) || WEXITSTATUS(state) != 0)
    stop(Status(ErrorCode::INTERNAL, "a measurement has died"));
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {seconds(used.ru_utime) + seconds(used.ru_stime), 0, static_cast<double>(used.ru_maxrss) / 1024};
}
}  // namespace internal

// What f returns, from a child. At most a pipe's page of plain data.
template <class F>
auto in_child(F f, Usage& usage) {
  using T = decltype(f());
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 4096);
  int ends[2];
  if (pipe(ends) != 0) stop(Status(ErrorCode::INTERNAL, "no pipe for a measurement"));
  const pid_t child = fork();
  if (child < 0) stop(Status(ErrorCode::INTERNAL, "no process for a measurement"));
  if (child == 0) {
    const T result = f();
    _exit(write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
  }
  close(ends[1]);
  usage = internal::wait_for(child);
  T result;
  if (read(ends[0], &result, sizeof result) != sizeof result)
    stop(Status(ErrorCode::INTERNAL, "a measurement has left no result"));
  close(ends[0]);
  return result;
}

}  // namespace quern
