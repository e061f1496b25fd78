// Whether the first launch of a plan begins while what is in front of the plan ends is asked of the GPU: the other kernel leaves
// it less of the caches and of the SMs, and to some that costs more than a launch takes.
#pragma once

#include <optional>

#include "core/profile/bench.h"

namespace quern {

struct WaitingPlan {
  Plan plan;
  Bench::Time time;
};

// The plan with a first launch that waits, if that is right and faster than `plan`, which the bench has loaded as `id`.
std::optional<WaitingPlan> faster_where_it_waits(Bench& bench, uint32_t id, const Plan& plan, bool tf32);

}  // namespace quern
