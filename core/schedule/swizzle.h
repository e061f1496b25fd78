// The shared-memory layout that serves two accesses best, by linear algebra (arXiv 2505.23819, optimal
// swizzling).
//
// What one cycle should serve is a subspace of the tensor: the elements that the lanes served at once touch.
// It is free of bank conflicts iff it meets the *segments*, the elements that share bank 0, in nothing but
// one word. Both accesses' subspaces have at most 5 dimensions (32 banks), and over any field two subspaces
// of equal dimension have a common complement: with A and B the parts of the two that are not in common, the
// sums a_i + b_i together with whatever lies outside both. So two accesses with equally wide vectors never
// need to conflict.
#pragma once

#include <optional>
#include <vector>

#include "core/schedule/layout.h"

namespace quern {

// The bits of one access, as flat tensor coordinates: along a lane's vector in the order of memory, all
// others, and those of the others that are served at once.
struct AccessColumns {
  std::vector<uint64_t> vector, others, together;
};

// A bijection from a tensor of these dimensions to `offset` in which both accesses' vectors are contiguous
// and aligned. narrow.vector is a prefix of wide.vector. Nothing if no such layout exists. Free of conflicts
// on the wide side; on the narrow side, too, if the vectors are equally wide, else as nearly as the wide
// vectors permit.
std::optional<Layout> swizzled_memory(const std::vector<LayoutDim>& tensor, const AccessColumns& wide,
                                      const AccessColumns& narrow, int element_bytes);

}  // namespace quern
