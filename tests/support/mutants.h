// Mutants of muGraphs: one small change each, of the kinds that a search or a lowering gets wrong.
#pragma once

#include "core/mugraph/mugraph.h"

namespace quern {

struct Mutant {
  std::string change;  // "kernel 0, operator 4: operands swapped"
  MuGraph mugraph;     // valid, but it need not compute anything that fits together
};

// All mutants that validate() passes: operands swapped or replaced, another axis reduced, another operator,
// accumulators and reductions over the cluster dropped or of another kind, rescaling forgotten, maps of loads
// and stores changed, ranges off by one, numbers changed, tiles transposed, outputs permuted, comparisons
// changed, branches of conditions swapped and dropped, slices and indices off by one. Some of them are equal
// to the original.
std::vector<Mutant> mutants(const MuGraph& mugraph);

}  // namespace quern
