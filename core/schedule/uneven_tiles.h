// Tiles of products whose extents are no powers of two, for wgmma: 192 x 192 where 128 x 128 leaves most SMs idle
// in the last wave.
#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace quern {

struct UnevenTile {
  TileExtents tile = {};  // along the axes that cut rows and columns
  // Warpgroups that have 64 of its rows each, or of its columns, where these become rows of the result.
  WarpCounts warps = {};
};

// Of a kernel whose loop multiplies tiles of two tensors, one with rows and one with columns of the result: those
// few that leave less to the SM that has the most to do than powers of two leave it. Of one whose rows are the same in all
// iterations (attention): three warpgroups' rows. Of one with rows for one warpgroup alone: columns with which there are about as
// many blocks as SMs.
std::vector<UnevenTile> uneven_tiles(const MuGraph& mugraph, const MuKernel& kernel, const Target& target);

}  // namespace quern
