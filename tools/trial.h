// A trial: a graph run on inputs of some class, by the emulator or a GPU, and every element compared with the
// f64 reference.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/target.h"
#include "core/graph/graph.h"
#include "core/verify/reference.h"

namespace quern {

inline constexpr const char* kRandomInputs = "random";
// `asked`, or with "all" random inputs and the hostile classes. INVALID_ARGUMENT names those that there are.
Result<std::vector<std::string>> input_classes(const std::string& asked);
// One buffer an input, from `seed`: random floats are uniform in [-1, 1].
std::vector<std::string> make_inputs(const Graph& graph, const std::string& input_class, uint64_t seed);

// Runs a plan on these inputs and gives its outputs.
using Runner = std::function<Result<std::vector<std::string>>(const std::vector<std::string>& inputs)>;
// The baseline emitter's text, on the CPU. NOT_FOUND without a C++ compiler; the runner gives INTERNAL when a
// kernel breaks a rule of the machine.
Result<Runner> emulator_runner(const Graph& graph, const Target& target, uint64_t seed);
// On the first GPU. NO_DEVICE, CUDA, UNSUPPORTED.
Runner gpu_runner(Plan plan);

struct OutputCheck {
  TensorDesc desc;
  Comparison comparison;
};
// One check an output. `tf32`: f32 products may have been computed in tf32.
std::vector<OutputCheck> check_outputs(const Graph& graph, const std::vector<std::string>& inputs,
                                       const std::vector<std::string>& outputs, bool tf32);

}  // namespace quern
