// The float reference (core/verify/reference.h) as programs for a GPU, where the CPU takes minutes: one that
// says of every element of every output what it should be, and one that compares outputs with that.
//
// Their text is that of noisy.h and of the meanings in ops.def, so there is one definition of what is right.
#pragma once

#include <string>
#include <vector>

#include "core/base/plan.h"
#include "core/base/target.h"
#include "core/graph/graph.h"
#include "core/jit/compiler.h"

namespace quern {

// What `evaluate` writes for an element, and `compare` for each of its threads.
struct WantedElement {
  double exact, bound;
  int32_t demand, unused;  // quern::Demand
};
struct ComparedPart {
  int64_t first;  // the first element that is wrong; -1: none
  double error, bound, norm, largest;
};

struct ReferenceProgram {
  // Inputs: the graph's, and two i32 flags: whether an input holds a number that is not finite, and whether
  // f32 products may be computed in tf32. Outputs: WantedElements of each output of the graph, as i32.
  Plan evaluate;
  // Inputs: WantedElements of all outputs, then the outputs themselves. Outputs: ComparedParts of each, as
  // i32.
  Plan compare;
  std::string source;                // of both, after the prelude
  std::vector<std::string> options;  // that the compiler needs
};

// Without code. UNSUPPORTED when a GPU would take too long for it, too.
Result<ReferenceProgram> emit_reference(const Graph& graph, const Target& target);
// With code.
Result<ReferenceProgram> make_reference(const Graph& graph, const Target& target, Compiler& compiler);

// Both plans in one string, and back.
std::string encode_reference(const ReferenceProgram& program);
Result<ReferenceProgram> decode_reference(const std::string& bytes);

}  // namespace quern
