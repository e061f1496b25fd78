// The schedules that one kernel may have on a target.
#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace quern {

struct EnumeratorOptions {
  bool allow_tf32 = false;  // also schedules that compute f32 products in tf32
  int threads = 1;          // that look for the schedules of a kernel
};

// Of the only kernel of `mugraph` (kernel_alone), different ones, best first by the model. `own` is what they are like beside
// tiles, warps and the loop. Empty when not even the kernel's own numbers fit.
std::vector<KernelSchedule> kernel_schedules(const MuGraph& mugraph, const KernelSchedule& own,
                                             const Target& target, const EnumeratorOptions& options);

}  // namespace quern
