// Ways to cut a DAG into kernels: one, or two with a value that the first hands to the second, or with all values that the
// second needs to go through an index once more.
#pragma once

#include <vector>

#include "core/search/roles.h"

namespace quern {

struct Cut {
  std::vector<KernelDag> kernels;  // in launch order
  std::vector<Dims> tensors;       // inputs, outputs, what is handed on
  double traffic = 0;              // bytes written and read between the kernels
  DType handed_on = DType::f32;    // what is handed on: as the graph has it, if it is one value
};

// One kernel first, then cuts in two by ascending traffic, at most `most` in all. Values that have more elements than
// all inputs and outputs together are never handed on.
std::vector<Cut> kernel_cuts(const Dag& dag, const Terms& terms, size_t most);

// Bytes that loading an element of each tensor of a cut takes; inputs that are `numbered`
// (Piece) take none.
std::vector<double> element_bytes(const Graph& graph, const std::vector<bool>& numbered, const Cut& cut);

}  // namespace quern
