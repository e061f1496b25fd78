// The schedules that a muGraph may have on a target, best first by the model of model.h.
#pragma once

#include <cstdint>
#include <functional>

#include "core/schedule/schedule.h"

namespace quern {

// Whether a kernel is out of the question; `joined`: it shares a launch; `applied`: the kernel as the schedule
// cuts it.
using RefuseKernel = std::function<bool(const KernelSchedule& schedule, bool joined,
                                        const std::function<MuKernel()>& applied)>;

// Each fits the muGraph and the target's shared memory and registers. Deterministic; empty only when not even
// the muGraph's own numbers fit, or all of a kernel's schedules are refused. At most `most`. With `allow_tf32`
// also those that compute f32 products in tf32.
std::vector<Schedule> enumerate_schedules(const MuGraph& mugraph, const Target& target,
                                          bool allow_tf32 = false, size_t most = SIZE_MAX,
                                          const RefuseKernel& refuse = {});

}  // namespace quern
