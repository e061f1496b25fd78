// Tensors that are read where another one lies: what transposes, slices, broadcasts and reshapes make of it.
#pragma once

#include "core/mugraph/mugraph.h"

namespace quern {

// Whether the operator only moves elements, so that its result may be a view.
bool moves_only(OpCode code);

// Whether a tile of these extents has elements of the view more than once. What block graphs read through a view has not.
bool repeats(const TensorView& view, const Ints& tile);

// Where the result of an operator over whole tensors lies in the memory of what it is made of; `source` is -1
// if it needs memory of its own: elements change, accesses would be narrow, or dimensions are joined that
// need not be neighbours (the caller's tensors may have any strides, unless they are dense). The operands' views are known already.
TensorView view_of(const MuGraph& mugraph, const MuKernel& kernel);

// The same for what concatenations make, and transposes and reshapes of that: each piece where it lies.
PiecedView pieced_view_of(const MuGraph& mugraph, const MuKernel& kernel);

// Of a view of a tensor with these strides: its own, and the place of its first element, in elements.
Ints view_strides(const TensorView& view, const Ints& source_strides);
int64_t view_offset(const TensorView& view, const Ints& source_strides);
// Of a tensor, where all that are no views are dense.
Ints strides_if_dense(const MuGraph& mugraph, const MuTensor& tensor);

}  // namespace quern
