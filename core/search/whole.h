// Reductions in front of the loop. A value in the loop may need a reduction over all of the looped index, as the factor of a
// norm in front of a product does. Such a kernel has no loop unless the reduction is made before it, of tiles that the loop
// does not cut: its operands are loaded once more, whole, along an index of their own that has the same extent.
#pragma once

#include "core/search/cuts.h"

namespace quern {

// The cut with its kernel changed: for each index over which that has no loop otherwise. Of two kernels the first can make the
// reductions, so that there is nothing to change. Labels that are new are added to `terms` (LabelInfo::whole_of).
std::vector<Cut> with_whole_reductions(const Cut& cut, Terms& terms);

}  // namespace quern
