// How far numerators of softmaxes are scaled down so that their sums stay finite.
#pragma once

#include "core/mugraph/mugraph.h"

namespace quern {

// Sets `down` of exponentials; `rounds_to` must be known (narrow.h).
//
// A softmax is normalised behind its product: sum(e^(s - m) v) / sum(e^(s - m)). Of n keys the sum may be n
// times the largest |v|, which overflows where v is near the largest f32 or bf16, although the quotient does
// not. With 2^-down e^(s - m), 2^down > n, both sums are scaled by the same power of two, exactly, and stay
// below the largest |v|; what is lost are numerators below 2^down times the smallest normal number
// (docs/language.md). So it is done where sums may overflow, which those of f16 values cannot, and where
// every output is a quotient of such sums: not for a log-sum-exp. Operands of tensor cores in f16 have no
// room for it.
void scale_numerators(MuGraph& mugraph);

}  // namespace quern
