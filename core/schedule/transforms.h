// What warps of their own may make for the products of a block (KernelSchedule::transform).
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "core/mugraph/mugraph.h"

namespace quern {

// The operand of a product and what it is made of in the loop, element by element or by reductions, where that is tiles of the
// stage and numbers, and nothing else uses it; none otherwise.
std::set<BlockValue> made_of_stage(const std::vector<BlockOp>& ops, const std::vector<Stage>& stages,
                                   const std::function<bool(BlockValue)>& is_staged, BlockValue product,
                                   BlockValue operand);

}  // namespace quern
