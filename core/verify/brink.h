// Inputs at which the unfused program is finite, just.
//
// A program that computes its values in another order, or scales them elsewhere, may leave the range of a
// dtype where the unfused program does not, and random inputs of any fixed size do not show it. So inputs are
// scaled until the largest value that the unfused program rounds to a dtype, its sums in any order among
// them, is just below the end of that dtype; sometimes beyond, because infinities have their places, too.
// Each input grows, shrinks or stays: a product of two large inputs shows only where a third one is small.
#pragma once

#include "core/verify/reference.h"

namespace quern {

// Scales the float inputs of a decomposed graph among the first `count`, which are of moderate size, by
// powers of one number; empty inputs stay. Outputs take turns of four draws; what the others are made of may
// overflow. In the first turn of each all inputs grow, later the seed says what each does. The second draw of
// a turn lets the output overflow itself, the fourth lets everything overflow that comes near the end first.
// False, and the inputs are as they were, if no scale comes near an end.
bool scale_to_brink(const Graph& primitive, std::vector<RealTensor>& inputs, size_t count, uint64_t seed,
                    int draw);

// The same for the infinities of an output, in sums of terms of nearly one size and of either sign. Outputs
// take turns: what one is made of is finite, all inputs that it is made of grow, and it may overflow itself.
// In every fourth draw the sums and products inside take turns; false, if there are none: one comes near its
// end, and as all other inputs shrink, what is made of it does not. In their first turns all inputs grow that
// the value grows with, later the seed says which.
bool scale_to_overflow(const Graph& primitive, std::vector<RealTensor>& inputs, size_t count, uint64_t seed,
                       int draw);

}  // namespace quern
