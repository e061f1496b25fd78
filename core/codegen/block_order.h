// In which order the blocks of a grid begin.
#pragma once

#include "core/codegen/block/facts.h"

namespace quern {

// Blocks that have more to do begin first, so that none of them is alone at the end. Those that are like
// it, of other heads, are between it and the next, as many as the L2 cache holds what all of them read
// again and again.
BlockOrder block_order(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                       const Target& target);

}  // namespace quern
