// A trial: a graph run once on random inputs, by the emulator or a GPU, and every element compared with the
// f64 reference.
#pragma once

#include <string>
#include <vector>

#include "core/base/target.h"
#include "core/graph/graph.h"
#include "core/verify/reference.h"

namespace quern {

// One buffer an input, from `seed`; floats are uniform in [-scale, scale].
std::vector<std::string> random_inputs(const Graph& graph, uint64_t seed, double scale);

// What the baseline emitter's text computes, run on the CPU. INTERNAL when a kernel breaks a rule of the
// machine; NOT_FOUND without a C++ compiler.
Result<std::vector<std::string>> run_in_emulator(const Graph& graph, const Target& target,
                                                 const std::vector<std::string>& inputs, uint64_t seed);

// What the plan computes on the first GPU. NO_DEVICE, CUDA, UNSUPPORTED.
Result<std::vector<std::string>> run_on_gpu(const Plan& plan, const std::vector<std::string>& inputs);

struct OutputCheck {
  TensorDesc desc;
  Comparison comparison;
};
// One check an output. `tf32`: f32 products may have been computed in tf32.
std::vector<OutputCheck> check_outputs(const Graph& graph, const std::vector<std::string>& inputs,
                                       const std::vector<std::string>& outputs, uint64_t seed, bool tf32);

}  // namespace quern
