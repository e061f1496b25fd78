// The schedules that one kernel may have on a target.
#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace quern {

// Of the only kernel of `mugraph` (kernel_alone), different ones, best first by the model. `own` is what they are like beside
// tiles, warps and the loop. Empty when not even the kernel's own numbers fit.
std::vector<KernelSchedule> kernel_schedules(const MuGraph& mugraph, const KernelSchedule& own,
                                             const Target& target, bool allow_tf32);

}  // namespace quern
