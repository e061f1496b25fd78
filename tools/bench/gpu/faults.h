// Programs with planted faults, for showing that none is ever published: the baseline's program of a random
// graph, and a kernel behind it that does harm.
#pragma once

#include <string>

#include "core/base/target.h"
#include "core/graph/graph.h"
#include "core/jit/compiler.h"
#include "core/optimize/program.h"

namespace quern {

struct FaultyJob {
  std::string fault;  // "hangs"
  Graph graph;
  std::vector<Program> programs;  // the baseline's, and the faulty one
};

// The same number gives the same job everywhere.
Result<FaultyJob> make_faulty_job(uint64_t number, Compiler& compiler, const Target& target);

struct FaultOptions {
  int jobs = 100;
  unsigned parallel = 1;
  std::string worker;
  int device = 0;
};
// Measures that many jobs; prints what was refused, and why. Whether nothing faulty was published and each
// baseline was found right.
bool run_faults(const FaultOptions& options, Compiler& compiler, const Target& target);

}  // namespace quern
