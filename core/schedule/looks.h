// Who looks whether numbers are finite that loops with `intervals` do not load (core/mugraph/tile_masks.h): blocks
// of their own, in the launch in front if they fit in there, else in one more launch.
#pragma once

#include <optional>

#include "core/schedule/schedule.h"

namespace quern {

// Of a kernel with `intervals`: the launch in front, if its threads may look as well and it does not write what is
// looked at.
std::optional<LaunchedKernels> launch_that_looks(const MuGraph& mugraph, const Schedule& schedule, size_t k);

}  // namespace quern
