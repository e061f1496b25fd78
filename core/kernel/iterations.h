// Which iterations of a loop a condition holds in, as an interval whose ends are known in front of the loop.
#pragma once

#include "core/kernel/ir.h"

namespace quern::ir {

// None where `end` is not behind `begin`; otherwise between 0 and the trip count.
struct Iterations {
  Expr begin, end;
};

// The condition is of comparisons whose sides change by the same number from iteration to iteration, and of
// what does not depend on the iteration; of others nothing is known. It does not wrap in any iteration.
//
// Where it may hold: all iterations in which it does lie in the interval.
Iterations iterations_possible(const Expr& condition, const Symbol& iteration, const Expr& trip_count);
// Where it surely holds: in all iterations of the interval.
Iterations iterations_certain(const Expr& condition, const Symbol& iteration, const Expr& trip_count);

}  // namespace quern::ir
