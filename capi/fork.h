// Tells a forked child from the process that made a handle, without a system call.
#pragma once

#include <cstdint>

namespace quern {

// Counts the forks between the first process that called it and this one: what was noted before a fork
// differs in the child. The first call in a process arms it. Children made by raw clone or vfork are not
// seen.
uint64_t fork_count();

}  // namespace quern
