// Library operators of a muGraph that follow each other: the baseline emitter fuses what it can of them.
#pragma once

#include "core/mugraph/dependence.h"

namespace quern {

// Kernels of a muGraph, half open: one block graph, or library operators in a row.
struct Step {
  size_t first, end;
};
std::vector<Step> steps_of(const MuGraph& mugraph);

// The first and the last step that uses a tensor in memory, or -1: nobody needs it, or block graphs find it
// where another one lies. `inner`: only one of library operators does, so that the tensor has no place in
// memory.
struct TensorLife {
  int first = -1, last = -1;
  bool inner = false;
};
std::vector<TensorLife> tensor_lives(const MuGraph& mugraph, const std::vector<Step>& steps);

// Of each tensor that a block graph stores and that an output is made of by reshapes: this output, in whose memory it
// lies, so that the reshape is no launch. -1 of all others.
std::vector<int32_t> stored_as_outputs(const MuGraph& mugraph);

// What a step of library operators computes, and which tensors its inputs and outputs are. `strides`: of
// every tensor.
struct LibraryStep {
  Graph graph;
  std::vector<int32_t> inputs, outputs;
};
Result<LibraryStep> library_step(const MuGraph& mugraph, const Step& step,
                                 const std::vector<TensorLife>& lives, const std::vector<Ints>& strides);

// One more input of a graph that is being made.
ValueId add_input(Graph& graph, DType dtype, const Ints& shape, const Ints& strides, const std::string& name);

}  // namespace quern
