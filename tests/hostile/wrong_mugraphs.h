// The attack on the verifier: mutants of searched muGraphs, decided by evaluation in f64 on inputs on which
// every condition takes both values.
#pragma once

#include "core/graph/graph.h"
#include "core/mugraph/mugraph.h"
#include "tests/hostile/isolated.h"

namespace quern {

enum class Truth { equal, different, unclear };

// All elements of all outputs, of several draws of inputs. Infinities and NaN are values like others.
// `unclear` when rounding in f64 may explain the difference.
Truth compare_by_evaluation(const Graph& graph, const MuGraph& mugraph, uint64_t seed);

// Mutants of the searched muGraphs of the hostile graphs of seeds first .. first + count - 1, `most` of each
// muGraph. Counts are "mutants", and for each truth and verdict "different, rejected"; causes of findings are
// "accepted" (but it is different) and "original" (a searched muGraph that is different) and "abort".
Tally attack_verifier(uint64_t first, size_t count, size_t most);

}  // namespace quern
