#include "core/kernel/passes/draft.h"

#include <algorithm>

namespace quern::ir {

int64_t TileRing::stage_bytes() const {
  int64_t bytes = 0;
  for (const Tile& tile : tiles) bytes += tile.bytes;
  return bytes;
}

bool TileRing::has_arrivals(bool of_inputs) const {
  return std::any_of(arrivals.begin(), arrivals.end(), [&](const Arrival& each) {
    return !(of_inputs ? each.copies.of_inputs : each.copies.others).empty();
  });
}

Body Copies::all() const {
  Body body = of_inputs;
  body.insert(body.end(), others.begin(), others.end());
  return body;
}

int64_t Draft::mbarrier_bytes() const {
  constexpr int64_t kEach = 8;
  if (ring.maps.empty()) return 0;
  return kEach * (ring.stages * (static_cast<int64_t>(ring.arrivals.size()) + (producer ? 1 : 0)) +
                  (groups() > 1 ? groups() : 0) +
                  (ring.once_bytes == 0 ? 0
                   : turns              ? 2
                                        : 1));
}

Stmt Draft::barrier() const {
  if (!producer) return Instruction{Instr::block_barrier, {}, {}};
  return Instruction{Instr::named_barrier, {}, {workers}};
}

}  // namespace quern::ir
