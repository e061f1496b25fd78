#include "core/kernel/passes/draft.h"

#include <algorithm>

namespace quern::ir {

int64_t TileRing::stage_bytes() const {
  int64_t bytes = 0;
  for (const Tile& tile : tiles) bytes += tile.bytes;
  return bytes;
}

bool TileRing::asks_tma_for(Body Copies::*which) const {
  return std::any_of(arrivals.begin(), arrivals.end(),
                     [&](const Arrival& each) { return !(each.copies.*which).empty(); });
}

Body Copies::all() const {
  Body body = of_inputs;
  body.insert(body.end(), others.begin(), others.end());
  return body;
}

int64_t Draft::mbarrier_bytes() const {
  constexpr int64_t kEach = 8;
  if (ring.maps.empty()) return 0;
  const int64_t of_stage = static_cast<int64_t>(ring.arrivals.size()) + (producer ? 1 : 0),
                of_groups = groups() > 1 ? groups() : 0, once = turns ? 2 : 1;
  return kEach * (ring.stages * of_stage + of_groups + (ring.once_bytes > 0 ? once : 0));
}

Stmt Draft::barrier() const {
  if (!producer) return Instruction{Instr::block_barrier, {}, {}};
  return Instruction{Instr::named_barrier, {}, {workers}};
}

}  // namespace quern::ir
