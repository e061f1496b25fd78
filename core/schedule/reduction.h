// Sums (or any commutative, associative reduction) over a dimension of a register layout, as a butterfly.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/schedule/layout.h"

namespace quern {

// Every thread combines each of its registers r with register r ^ registers of the thread (lane ^ lanes, warp
// ^ warps). With lanes and warps 0 that is arithmetic within the thread, with warps 0 a shuffle, else shared
// memory.
struct ReductionStep {
  uint64_t registers, lanes, warps;
};

// The steps, cheapest first, after which all registers hold the result for their element of
// layout.without_output(dim); those of a thread that are copies then (independent_bits) need not be computed.
// Each element is counted once, also where the layout holds copies. Inputs are among register, lane and warp.
std::vector<ReductionStep> reduction_steps(const Layout& layout, std::string_view dim);

}  // namespace quern
