// What the lanes of a warp compute together once all have arrived: shuffles, votes, ldmatrix, stmatrix and mma.
#pragma once

#include <array>
#include <string>

#include "core/emulator/clock.h"
#include "core/emulator/memory.h"
#include "core/emulator/runtime.h"

namespace quern::emulated {

const char* collective_name(Collective kind);

// The operands of the lanes in `mask`; what they point to depends on the kind (runtime.h).
struct WarpOperands {
  unsigned mask = 0;
  std::array<void*, kWarpSize> lanes{};
};

// Computes every lane's results. Otherwise the rule that was broken, empty if none.
std::string perform(Collective kind, const WarpOperands& operands, int first_thread, Memory& memory);

}  // namespace quern::emulated
