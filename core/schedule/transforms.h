// What warps of their own may make for the products of a block (KernelSchedule::transform).
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "core/mugraph/mugraph.h"

namespace quern {

// The operand of a product and what it is made of in the loop, element by element or by reductions, where that is tiles of the
// stage, numbers and what is loaded in front of the loop (weights), and nothing else uses it; none otherwise. Reductions are over
// neighbours in memory, which a warp has. `staged_neighbours`: of a load that comes through the stage the dimension of these, else -1.
std::set<BlockValue> made_of_stage(const std::vector<BlockOp>& ops, const std::vector<Stage>& stages,
                                   const std::function<int(BlockValue)>& staged_neighbours,
                                   BlockValue product, BlockValue operand);

}  // namespace quern
