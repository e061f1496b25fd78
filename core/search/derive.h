// From roles and tile counts to a muGraph: loads with their maps, accumulators, the combination of a
// cluster's blocks or the second kernel, stores. The result is a function of the instance of the graph, the
// design and nothing else, so that the same design can be derived for a smaller instance.
#pragma once

#include "core/search/roles.h"

namespace quern {

// The tile counts of one kernel.
struct Sizes {
  std::array<int64_t, 3> grid = {1, 1, 1};  // parts, for Roles::grid
  int64_t trip_count = 1;                        // of the loop
  int64_t ranks = 1;  // parts of the looped index among the blocks of a cluster, or over the grid (Split)
  int threads = 128;
  bool operator==(const Sizes&) const = default;
};

struct KernelDesign {
  KernelDag kernel;
  Roles roles;
  Sizes sizes;
};

// All of a piece: kernels in launch order, and the dimensions of tensors by number (KernelDag).
struct Design {
  std::vector<KernelDesign> kernels;
  std::vector<Dims> tensors;
  DType handed_on = DType::f32;  // of those that are neither inputs nor outputs
};

// `graph` is the one that `terms` are of. The muGraph is validated.
Result<MuGraph> derive(const Graph& graph, const Terms& terms, const Design& design);

// "grid n, m; loop kv (cluster); after the loop ..." for people, and for grouping designs of one structure.
std::string print_roles(const KernelDesign& kernel, const Terms& terms);

}  // namespace quern
