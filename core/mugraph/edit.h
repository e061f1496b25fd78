// What those who make or rewrite muGraphs need.
#pragma once

#include "core/mugraph/mugraph.h"

namespace quern {

// `name`, or with a number behind it where a tensor has that name already: "part", "part_2", ...
std::string unique_tensor_name(const MuGraph& mugraph, const std::string& name);

// Keeps the block operators that a store needs. For each of those before its number now, -1 for what is gone.
std::vector<BlockValue> keep_stored(std::vector<BlockOp>& ops);

// Calls visit(tensor) with every tensor that a block operator names, be it for its extent.
template <class Op, class Visit>
void for_each_tensor(Op& op, const Visit& visit) {
  if (op.has_access()) visit(op.access().tensor);
  if (op.is_compute())
    for (auto& dim : op.compute().extents) visit(dim.tensor);
}

// A custom kernel as a muGraph of its own, without names, with the tensors that it names and those that views of these show: equal
// kernels are equal muGraphs. What others write is given, and still is a view or numbered if it was.
MuGraph kernel_alone(const MuGraph& mugraph, const MuKernel& kernel);

}  // namespace quern
