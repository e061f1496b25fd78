// Runs what the emitter emits in the emulator and compares it with the float reference: many graphs a
// compilation.
#pragma once

#include <string>
#include <vector>

#include "core/base/plan.h"
#include "core/graph/graph.h"

namespace quern {

struct EmulatedCase {
  std::string label;
  Graph graph;
  uint64_t seed = 1;   // of the inputs and of the order of threads
  double scale = 1.0;  // of float inputs
};

// One line for each case that is refused, breaks a rule of the GPU, or is further from the reference than
// allowed.
std::vector<std::string> find_failures(const std::vector<EmulatedCase>& cases);

// The two halves of it, for whoever runs plans elsewhere: inputs of a case, and what is wrong with its
// outputs (nothing if empty).
std::vector<std::string> input_buffers(const EmulatedCase& test, const Plan& plan);
std::string judge(const EmulatedCase& test, const Plan& plan, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs);

// Parses a graph that must be valid.
Graph test_graph(const std::string& text);

}  // namespace quern
