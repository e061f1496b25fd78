// Which kernels of a muGraph have to run one after the other.
#pragma once

#include "core/mugraph/mugraph.h"

namespace quern {

// The tensors in whose memory block graphs find a tensor, none if they compute it. Of a muGraph that is
// valid.
std::vector<int32_t> memory_of(const MuGraph& mugraph, int32_t tensor);

// Whether block graphs find what a kernel of one operator makes where other tensors lie, or compute it: then
// nothing is launched for them.
bool is_view(const MuGraph& mugraph, const MuKernel& kernel);

// Tensors in memory that a kernel reads and writes, each once.
struct KernelAccesses {
  std::vector<int32_t> reads, writes;
};
KernelAccesses accesses_of(const MuGraph& mugraph, const MuKernel& kernel);

// Neither reads or writes what the other one writes.
bool independent(const KernelAccesses& a, const KernelAccesses& b);

}  // namespace quern
