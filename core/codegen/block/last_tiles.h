// Whether the last tile along an axis of the grid begins earlier, so that it ends where tensors end.
#pragma once

#include "core/codegen/block/facts.h"

namespace quern {

// For each dimension of an operand that of the result which has its extent, or -1.
std::vector<int> result_dims(const BlockProgram& program, BlockValue value, size_t operand);

// Whether the blocks at the end of `axis`, for which less than a tile is left, take a whole one: the block in front computes
// the rest of it, too, and stores it. TMA takes some three times as long for rows that are not there. All that the axis
// cuts must be cut alike, and nothing may be summed along it.
bool takes_whole_tiles(const BlockFacts& facts, int axis);

}  // namespace quern
