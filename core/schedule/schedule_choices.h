// What the schedule of a kernel may have of tiles, warps, iterations and clusters, before anything is ranked.
#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace quern {

// What of a kernel decides that.
struct KernelShape {
  bool product = false;
  bool chained = false;      // by online softmax
  bool of_products = false;  // the loop multiplies what it makes of products
  bool stores_in_loop = false;
  int64_t summed_rows = 1;                   // without products: of a tile whose last dimension is reduced
  bool narrow = false;                       // tensor cores take one as it is
  int64_t rows = 1, columns = 1, inner = 1;  // of the largest product of the loop
};
KernelShape shape_of(const MuKernel& kernel);

// What blocks cut of the axis (kGridAxes: of what the loop cuts); 0 as well where tile sizes say nothing.
int64_t extent_or_none(const MuGraph& mugraph, const MuKernel& kernel, int axis);

std::vector<WarpCounts> warp_choices(const KernelShape& shape);

// The muGraph's own tiles, the same rounded, and of these those of one axis at a time smaller or larger.
std::vector<TileExtents> tile_choices(const MuGraph& mugraph, const MuKernel& kernel,
                                      const KernelShape& shape);

// The muGraph's own tile of an iteration, and those of some sizes that tensor cores like. `kernel` is cut
// already; `cut_by_loop`: the block's extent of what the loop cuts, 0 if nothing.
std::vector<int64_t> tile_k_choices(const MuKernel& kernel, const KernelShape& shape,
                                    const KernelSchedule& schedule, int64_t cut_by_loop);

// Of parts of the inner dimension, whose sums meet in a cluster: as many as the muGraph has, half or twice of
// it.
std::vector<int64_t> cluster_choices(const MuKernel& kernel, const KernelShape& shape, const Target& target);

}  // namespace quern
