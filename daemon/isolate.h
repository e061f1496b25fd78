// What a worker gives up before it touches a graph: it runs compilers and drivers on what clients send, so
// that a fault in one of them must not reach the network, other processes, the store or any other file.
#pragma once

#include "core/base/status.h"

namespace quern {

enum class Confinement {
  compiles,  // reads files, starts threads, talks to the daemon; opens nothing to write and makes no file
  measures,  // starts processes of its own that use a GPU (uses_gpu)
  uses_gpu,  // opens devices to write; where the kernel has Landlock, makes files in /dev/shm only
};

// For this process and all that it starts: no new privileges, no descriptors but 0, 1 and 2, no network, no
// other programs (except for `measures`), no signals to others, no tracing, mounting or loading of modules.
// What it does all the same fails with EPERM. Call before there are other threads. IO when the kernel
// refuses.
Status isolate(Confinement confinement);

}  // namespace quern
