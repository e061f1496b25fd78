// Pairs of tiles from both ends of the axis of a grid along which blocks have more and more to do, as causal attention has
// along its queries: persistent blocks that keep such a pair all have about as much to do.
#pragma once

#include <optional>

#include "core/mugraph/mugraph.h"

namespace quern {

struct TilePairs {
  int axis = 0;
  int64_t count = 0, others = 0;  // of pairs along it; of tiles along the other axes
};

// `uneven`: that axis (UnevenAxis), -1: none. Nothing where a tile would be left over.
inline std::optional<TilePairs> tile_pairs(const MuKernel& kernel, int uneven) {
  if (uneven < 0) return std::nullopt;
  const int64_t extent = kernel.grid[static_cast<size_t>(uneven)];
  if (extent % 2 != 0) return std::nullopt;
  return TilePairs{uneven, extent / 2, kernel.grid[0] * kernel.grid[1] * kernel.grid[2] / extent};
}

}  // namespace quern
