// Inputs at which sums of the graph cancel.
//
// A program that multiplies a sum out, (a + b) c as a c + b c, is right wherever a + b is not much smaller
// than a and b. Inputs that are drawn seldom make it so in a whole row, and the error of a row is that of its
// largest sum. So an input that a sum adds as it is, as a bias is, becomes what cancels the other operand.
#pragma once

#include "core/verify/reference.h"

namespace quern {

// Gives a float input of a decomposed graph, one of the first `count`, the negative of what it is added to,
// or the value that it is subtracted from, beside small numbers; where it is broadcast, that of one of the
// places, the same for all of its elements. Other inputs stay. Sums take turns with `draw`, the seed says
// which place. False, and the inputs are as they were, if the graph has no such sum; empty inputs are not
// changed.
bool cancel_sum(const Graph& primitive, std::vector<RealTensor>& inputs, size_t count, uint64_t seed,
                int draw);

}  // namespace quern
