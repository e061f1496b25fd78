// Where the tensors of a muGraph lie in memory.
#pragma once

#include <functional>
#include <string>

#include "core/base/plan.h"
#include "core/mugraph/mugraph.h"

namespace quern {

struct TensorPlace {
  std::string name;  // of the kernel's parameter
  DType dtype = DType::f32;
  Ints shape, strides;
  LaunchArg arg;
  int64_t offset = 0;  // elements of the argument in front of its first one
  int numbered = -1;   // nowhere: elements are their number along this dimension
  // In several places: pieces that follow each other along dimension `axis`. Strides are those of the first
  // then.
  int axis = -1;
  std::vector<TensorPlace> pieces = {};
  std::vector<int32_t> memory = {};  // the tensors that are there
  Ints repeats = {};                 // see repeats_of(); all 1 if empty

  // Coordinates along dimension d that are one in memory (TensorView::Dim).
  int64_t repeats_of(size_t d) const { return repeats.empty() ? 1 : repeats[d]; }
  // The shape, without repetitions.
  Ints extents_in_memory() const;
};

// Where block graphs find a tensor: views and pieces lie in what they are made of. `lies(tensor)` says where
// tensors with memory of their own are.
TensorPlace read_place(const MuGraph& mugraph, int32_t tensor,
                       const std::function<const TensorPlace&(int32_t)>& lies);
// The same where these are all dense, as the caller's tensors are taken to be.
TensorPlace dense_place(const MuGraph& mugraph, int32_t tensor);

}  // namespace quern
