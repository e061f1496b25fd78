// Where the check for infinities and NaN runs that loops with `intervals` need: what they do not load is multiplied by
// zeros, so that it may be left out only if it is finite (core/mugraph/tile_masks.h). Thread blocks of their own check
// it: in the launch in front if they fit in there, else in one more launch. Or the sums of the kernel say it, where these
// show all of it: a launch behind does everything again, and loads all, if a sum of any block is not finite.
#pragma once

#include <optional>

#include "core/schedule/schedule.h"

namespace quern {

// Of a kernel with `intervals`: the launch in front, if blocks that check may ride in it and it does not write what they
// check.
std::optional<LaunchedKernels> launch_that_looks(const MuGraph& mugraph, const Schedule& schedule, size_t k);

// Of a kernel with `intervals`: whether its own sums say it, to a launch behind.
bool looks_behind(const MuGraph& mugraph, const Schedule& schedule, size_t k);

}  // namespace quern
