// What is left of an iteration in which positions mask all that it selects from: nothing, if none of its
// accumulators changes. That is found by computing with the numbers that stand for what is masked, through
// all operators behind them: an exponential of -inf is 0, and so is 0 times whatever is finite. What must
// hold of values that only a launch knows is demanded of them.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "core/mugraph/mugraph.h"

namespace quern {

constexpr double kFarAbove = 128;  // e^-128 is 0 in f32

struct MaskedWork {
  // Each element lies so far above `number` (kFarAbove) that the exponential of the difference is 0; NaN does not.
  struct FarAbove {
    BlockValue value = -1;
    double number = 0;
    auto operator<=>(const FarAbove&) const = default;
  };
  // Those that were taken to select their numbers everywhere. Each begins with a select, behind which are those
  // that it selects from and that have the same number: one of them that is masked is enough.
  std::set<std::vector<BlockValue>> chains;
  // Of what is there for each row: running maxima, and what the loop does not change.
  std::set<FarAbove> far_above;
  // Each element is: of tiles that the loop loads, and of what it does not change.
  std::set<BlockValue> finite;
};

// `masks` says which conditions positions decide. Nothing if an iteration changes something all the same, or
// if nothing is masked. Both for muGraphs and for what is lowered from them (lower_block).
std::optional<MaskedWork> masked_work(const std::vector<BlockOp>& ops, const std::vector<Stage>& stages,
                                      const std::function<bool(BlockValue condition)>& masks);

// The accumulators of the products that `value` is an operand of. Nothing if anything else is made of it: then it may be
// infinite, and they finite all the same.
std::optional<std::set<BlockValue>> sums_of_products(const std::vector<BlockOp>& ops, BlockValue value);

}  // namespace quern
