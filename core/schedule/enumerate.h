// The schedules that a muGraph may have on a target, best first by a model of what limits a kernel: bytes,
// how many of them are on their way at a time, and how blocks fill the multiprocessors.
#pragma once

#include "core/schedule/schedule.h"

namespace quern {

// Each fits the muGraph and the target's shared memory and registers. Deterministic; empty only when not even
// the muGraph's own numbers fit.
std::vector<Schedule> enumerate_schedules(const MuGraph& mugraph, const Target& target);

// The model's time of one custom kernel, cut as it is (apply_schedule), in microseconds; infinite if it does
// not fit the target.
double modelled_time(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                     const Target& target);

}  // namespace quern
