// Casts of a muGraph that keep precision, as those of graphs do (core/graph/decompose.h).
#pragma once

#include "core/mugraph/mugraph.h"

namespace quern {

// Marks casts to a narrower float whose values are only multiplied, and summed by products at last, in whatever kernel.
// Of a valid muGraph. Whether there are any.
bool mark_kept_casts(MuGraph& mugraph);

}  // namespace quern
