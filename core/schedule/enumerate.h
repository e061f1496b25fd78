// The schedules that a muGraph may have on a target, best first by the model of model.h.
#pragma once

#include <functional>

#include "core/schedule/schedule.h"

namespace quern {

// Whether a kernel, as its schedule cuts it, is out of the question; `joined`: it shares a launch.
using RefuseKernel =
    std::function<bool(const MuKernel& applied, const KernelSchedule& schedule, bool joined)>;

// Each fits the muGraph and the target's shared memory and registers. Deterministic; empty only when not even
// the muGraph's own numbers fit, or all of a kernel's schedules are refused. With `allow_tf32` also those that
// compute f32 products in tf32.
std::vector<Schedule> enumerate_schedules(const MuGraph& mugraph, const Target& target,
                                          bool allow_tf32 = false, const RefuseKernel& refuse = {});

}  // namespace quern
