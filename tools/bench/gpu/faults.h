// Programs with planted faults, for showing that none is ever published: the baseline's program of a random
// graph, and a kernel behind it that does harm.
#pragma once

#include <string>

#include "core/base/target.h"
#include "core/graph/graph.h"
#include "core/jit/compiler.h"

namespace quern {

struct FaultOptions {
  int jobs = 0;
  unsigned parallel = 1;
  std::string worker;
  int device = 0;
  double minutes = 1e9;  // after these no graph is begun
};
// Measures that many jobs; prints what was refused, and why. Whether all jobs were done, nothing faulty was
// published, and each baseline was found right and timed once more behind the fault.
bool run_faults(const FaultOptions& options, Compiler& compiler, const Target& target);

}  // namespace quern
