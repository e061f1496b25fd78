// Whether a launch of a plan begins while what is in front of it ends is asked of the GPU. The first one finds less of the caches and of
// the SMs beside a kernel of the caller, and to some that costs more than a launch takes. Clusters go where there is room for one, and
// behind a kernel that leaves some SMs free all may end up on those where they cannot be spread evenly (core/jit/spread.h).
#pragma once

#include <functional>

#include "core/profile/bench.h"

namespace quern {

// A plan that is right, which the bench has loaded as `id`; and its times, if any were taken.
struct TimedProgram {
  uint32_t id = 0;
  Plan plan;
  bool tf32 = false;
  Bench::Time time;
};

// Has its first launch, and launches of clusters, wait where it is faster then, and right. Its code is the same; the certificate says
// which wait.
void settle_launches(Bench& bench, TimedProgram& program);
// The same of launches of clusters behind the first one, as long as it may go on.
void settle_clusters(Bench& bench, TimedProgram& program, const std::function<bool()>& may_go_on);

}  // namespace quern
