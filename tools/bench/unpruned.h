// The generator as it would be without pruning, to see what pruning is worth: every operator of the program's
// vocabulary over all values of a prefix, in a canonical order, as Mirage's generator (OSDI'25, section 4)
// without its abstract expressions. What has the form of the result is compared with it at random points.
#pragma once

#include <cstddef>

#include "core/search/terms.h"

namespace quern {

struct UnprunedReport {
  size_t seen = 0;      // operators that were tried as the next of a prefix
  size_t extended = 0;  // prefixes made
  size_t complete =
      0;             // DAGs of which every operator is used, with a result along the dimensions of the goal
  size_t equal = 0;  // of these, those that agree with the goal
  bool finished = true;  // within its processor time
};

// `program` is not saturated and has one goal; the vocabulary is that of `saturated`, without composites,
// which only shorten. At most `bound` operators, on one thread, for `limit_s` of processor time
// of the process.
UnprunedReport enumerate_unpruned(const Terms& program, const EGraph& saturated, int bound, double limit_s);

}  // namespace quern
