// Faults planted in kernels of the IR: one small change each, of the kinds that a lowering gets wrong and
// that break a rule of prove_kernel.
#pragma once

#include <string>
#include <vector>

#include "core/codegen/baseline.h"

namespace quern {

struct Fault {
  std::string kind;    // "missing barrier"
  std::string change;  // what was changed: the statement as it was
  ir::Kernel kernel;
};

// All of a kernel: bounds off by one, strides of what is written off by one, barriers and waits left out,
// phases, arrivals and bytes changed, vectors an element off, guards of writers dropped. Some of them are
// equal to the original.
std::vector<Fault> plant_faults(const ir::Kernel& kernel);

// A small program.
struct FaultCase {
  std::string label;
  Graph graph;
  Emitted emitted;
};
std::vector<FaultCase> fault_cases();

}  // namespace quern
