#include "core/search/constraints.h"

#include <algorithm>

namespace quern {

namespace {

template <class T>
bool lists(const std::vector<T>& allowed, const T& value) {
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

// An axis of one part cuts nothing, whatever the map says.
bool lists_map(const std::vector<std::array<int, 3>>& allowed, const MuKernel& kernel, const AxisMap& map) {
  return allowed.empty() || std::any_of(allowed.begin(), allowed.end(), [&](const std::array<int, 3>& want) {
           for (int axis = 0; axis < 3; ++axis)
             if (kernel.grid[axis] > 1 && want[axis] != map[axis]) return false;
           return true;
         });
}

}  // namespace

bool Constraints::empty() const {
  return griddims.empty() && blockdims.empty() && imaps.empty() && omaps.empty() && fmaps.empty() &&
         franges.empty();
}

bool Constraints::allow_grid(const std::array<int64_t, kGridAxes>& grid) const {
  return lists(griddims, {grid[0], grid[1], grid[2]});
}

bool Constraints::allow_turns(int64_t turns) const { return lists(franges, turns); }

bool Constraints::allow(const MuGraph& mugraph) const {
  for (const MuKernel& kernel : mugraph.kernels) {
    if (!kernel.custom) continue;
    const bool threads =
        blockdims.empty() || std::any_of(blockdims.begin(), blockdims.end(), [&](const auto& dims) {
          return dims[0] * dims[1] * dims[2] == kernel.threads;
        });
    if (!allow_grid(kernel.grid) || !allow_turns(kernel.turns) || !threads) return false;
    for (const BlockOp& op : kernel.ops) {
      if (op.kind == BlockOp::Kind::load && (!lists_map(imaps, kernel, op.map) || !lists(fmaps, op.loop_dim)))
        return false;
      if (op.kind == BlockOp::Kind::store && !lists_map(omaps, kernel, op.map)) return false;
    }
  }
  return true;
}

}  // namespace quern
