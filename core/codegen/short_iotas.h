// Iotas of a small instance count in strides, so that what is compared with them keeps its meaning: on 8 of
// 1024 positions a window of 256 is 2 wide. Or they count by one, so that positions which are next to each
// other occur: two rows see two of four keys.
#pragma once

#include "core/mugraph/shrink.h"
#include "core/verify/reference.h"

namespace quern {

// What the inputs that stand for iotas hold, one tensor each.
struct ShortIotas {
  std::vector<RealTensor> in_strides;  // index * (extent there / extent here), rounded down
  std::vector<RealTensor> by_one;
};

// Makes inputs of the iotas of `small` that are shorter than those of the program it was made of, behind the
// other inputs.
ShortIotas iotas_to_inputs(const Graph& whole, Graph& small);
ShortIotas iotas_to_inputs(const MuGraph& whole, MuGraph& small);

}  // namespace quern
