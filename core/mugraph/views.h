// Loads that need no memory of their own (MuTensor): tiles of a transposed tensor are tiles of the tensor, in
// another order of dimensions or without those of extent 1, and tiles of what positions decide, as masks do, are
// computed from iotas and from the integers that these are compared with (core/mugraph/positions.h).
#pragma once

#include "core/mugraph/mugraph.h"

namespace quern {

// Rewrites the loads of block graphs to such ones where they can be: transposes of loads, reshapes that drop
// dimensions of extent 1, and loads of what operators over whole tensors make of iotas, numbers and integers. A transposed tile that
// products alone read is stored as it lies, and read transposed. Operators that nobody needs any more go. The muGraph is valid, and computes the same afterwards.
void use_views(MuGraph& mugraph);

}  // namespace quern
