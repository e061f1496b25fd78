// Iotas of a small instance count in strides, so that what is compared with them keeps its meaning: on 8 of
// 1024 positions a window of 256 is 2 wide.
#pragma once

#include "core/mugraph/shrink.h"
#include "core/verify/reference.h"

namespace quern {

// Makes inputs of the iotas of `small` that are shorter than those of the program it was made of, and gives
// what the inputs hold: index * (extent there / extent here), rounded down. They stand behind the other
// inputs.
std::vector<RealTensor> iotas_to_inputs(const Graph& whole, Graph& small);
std::vector<RealTensor> iotas_to_inputs(const MuGraph& whole, MuGraph& small);

}  // namespace quern
