#include "core/schedule/looks.h"

#include <algorithm>
#include <bit>

#include "core/mugraph/dependence.h"
#include "core/mugraph/tile_masks.h"

namespace quern {

namespace {

// The last block graph in front of `k`, if it is what was launched last.
std::optional<size_t> kernel_in_front(const MuGraph& mugraph, size_t k) {
  while (k-- > 0)
    if (!is_view(mugraph, mugraph.kernels[k]))
      return mugraph.kernels[k].custom ? std::optional(k) : std::nullopt;
  return std::nullopt;
}

// Whether blocks that check may have the shape of this kernel's: alone (no cluster, not persistent), without a producer
// warp, their warps a power of two.
bool may_look(const MuKernel& kernel, const KernelSchedule& schedule) {
  return schedule.persistent == 0 && !schedule.producer && schedule.multicast_blocks() == 1 &&
         kernel.grid[kGridAxes - 1] == 1 && std::has_single_bit(static_cast<unsigned>(schedule.threads()));
}

}  // namespace

std::optional<LaunchedKernels> launch_that_looks(const MuGraph& mugraph, const Schedule& schedule, size_t k) {
  if (!schedule.kernels[k].intervals) return std::nullopt;
  const auto in_front = kernel_in_front(mugraph, launch_of(schedule, k).first);
  if (!in_front) return std::nullopt;
  const LaunchedKernels launch = launch_of(schedule, *in_front);
  const std::vector<int32_t> tensors = tensors_to_look_at(mugraph, mugraph.kernels[k]);
  for (size_t part = launch.first; part < launch.end; ++part) {
    if (!may_look(mugraph.kernels[part], schedule.kernels[part])) return std::nullopt;
    for (int32_t written : accesses_of(mugraph, mugraph.kernels[part]).writes)
      if (std::find(tensors.begin(), tensors.end(), written) != tensors.end()) return std::nullopt;
  }
  return launch;
}

bool looks_behind(const MuGraph& mugraph, const Schedule& schedule, size_t k) {
  const KernelSchedule& own = schedule.kernels[k];
  const LaunchedKernels launch = launch_of(schedule, k);
  return own.intervals && own.producer && launch.end - launch.first == 1 &&
         !launch_that_looks(mugraph, schedule, k) && sums_show_finite(mugraph, mugraph.kernels[k]);
}

}  // namespace quern
