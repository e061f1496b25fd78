#include "core/codegen/block_order.h"

#include <algorithm>

#include "core/base/grid.h"
#include "core/base/integers.h"
#include "core/mugraph/tile_masks.h"
#include "core/schedule/block_work.h"

namespace quern {

namespace {

class BlockOrderer {
 public:
  BlockOrderer(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
               const Target& target)
      : mugraph_(mugraph), kernel_(kernel), schedule_(schedule), target_(target) {}

  BlockOrder run() const {
    BlockOrder order;
    const UnevenAxis uneven = uneven_axis(mugraph_, kernel_);
    if (kernel_.grid[3] > 1) return order;
    const double room = target_.l2_mib * (1 << 20) / 2;
    const bool fit = looped_bytes([](const BlockOp&) { return 1.0; }) <= room,
               alone = schedule_.multicast_blocks() == 1;
    order.uneven = uneven.axis;
    if (uneven.axis < 0) {
      if (!fit && alone) order.together = neighbours_together();
      return order;
    }
    if (uneven.grows) order.backwards = uneven.axis;
    std::array<int, 3> axes = order.axes;
    std::stable_partition(axes.begin(), axes.end(), [&](int axis) { return (axis != uneven.axis) == fit; });
    auto extent = [&](int axis) { return kernel_.grid[static_cast<size_t>(axis)]; };
    if (!fits_launch(extent(axes[0]), extent(axes[1]), extent(axes[2])) || !(fit || alone)) return order;
    order.axes = axes;
    if (fit) return order;
    if (extent(axes[1]) < extent(axes[2])) std::swap(order.axes[1], order.axes[2]);
    const int heads = order.axes[1];
    for (int64_t some = 2; some <= extent(heads); ++some)
      if (extent(heads) % some == 0 && fits_launch(extent(axes[0]) * some, extent(heads) / some, 1) &&
          looped_bytes([&](const BlockOp& op) { return share_along(op, heads, some, extent(heads)); }) <=
              room)
        order.together = some;
    return order;
  }

 private:
  // Bytes of what loops load, each tensor by a share.
  template <class Share>
  double looped_bytes(const Share& share) const {
    double bytes = 0;
    for (const BlockOp& op : kernel_.ops)
      if (op.is_load() && op.loop_dim() >= 0 &&
          mugraph_.tensors[static_cast<size_t>(op.tensor())].numbered < 0)
        bytes += share(op) * bytes_of(mugraph_.tensors[static_cast<size_t>(op.tensor())].type);
    return bytes;
  }

  // Of a load's tensor, what so many of the blocks along an axis load.
  static double share_along(const BlockOp& load, int axis, int64_t some, int64_t all) {
    const bool cut = load.map()[static_cast<size_t>(axis)] >= 0;
    return cut ? static_cast<double>(some) / static_cast<double>(all) : 1;
  }

  // How many neighbours along y follow each other before the next along x, so that blocks that run at the same time load
  // least: of a product about as many rows of tiles as columns.
  int64_t neighbours_together() const {
    constexpr double kWorthIt = 0.9;  // of what they load in the order of the grid
    const int64_t across = kernel_.grid[0], down = kernel_.grid[1];
    const int64_t at_once =
        std::min(schedule_.persistent > 0 ? schedule_.persistent : int64_t{target_.sms}, across * down);
    // Where all run at once, those that ask for the same of the larger tensor are neighbours, so that they ask at the same time.
    if (at_once == across * down) {
      auto shared_along = [&](size_t axis) {
        return looped_bytes([&](const BlockOp& op) { return op.map()[axis] < 0 ? 1.0 : 0.0; });
      };
      return shared_along(1) > shared_along(0) && fits_launch(across * down, 1, kernel_.grid[2]) ? down : 1;
    }
    auto loaded = [&](int64_t together) {
      const int64_t columns = std::min(across, divide_up(at_once, together)),
                    rows = std::min(down, together * divide_up(at_once, together * across));
      return looped_bytes([&](const BlockOp& op) {
        return share_along(op, 0, columns, across) * share_along(op, 1, rows, down);
      });
    };
    int64_t best = 1;
    double least = kWorthIt * loaded(1);
    for (int64_t together = 2; together <= std::min(down, at_once); ++together)
      if (down % together == 0 && loaded(together) < least &&
          fits_launch(across * together, down / together, kernel_.grid[2])) {
        least = loaded(together);
        best = together;
      }
    return best;
  }

  const MuGraph& mugraph_;
  const MuKernel& kernel_;
  const KernelSchedule& schedule_;
  const Target& target_;
};

}  // namespace

BlockOrder block_order(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                       const Target& target) {
  return BlockOrderer(mugraph, kernel, schedule, target).run();
}

}  // namespace quern
