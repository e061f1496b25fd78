// Emits muGraphs, runs them in the emulator and compares with the float reference of the graph they compute.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/codegen/mugraph_emitter.h"

namespace quern {

// What the inputs hold: the bytes of each, by its number.
struct InputKind {
  std::string label;
  std::function<std::string(const TensorDesc&, size_t)> buffer;
};

struct MuGraphCase {
  std::string label;
  Graph graph;
  MuGraph mugraph;
  Schedule schedule;
  double scale = 1.0;  // of the inputs
  std::string target = "sm_80";
  std::vector<InputKind> inputs = {};  // each is a run; if there are none, one with random values
  std::optional<double> l2_mib = {};  // of the target, to have programs in the order of those that are larger
};

// The case's program for its target.
Result<EmittedMuGraph> emit(const MuGraphCase& test);
// The same; fails the test if the case is refused.
EmittedMuGraph emitted(const MuGraphCase& test);

// Fails the test if a case is refused, breaks a rule of the GPU, or is further from the reference than
// allowed, and prints those that do. One compilation for all.
void all_are_right(const std::vector<MuGraphCase>& cases);
// The same on friendly inputs, and on those of every hostile class.
void all_are_right_on_hostile_inputs(std::vector<MuGraphCase> cases);

}  // namespace quern
