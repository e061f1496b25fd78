#include "core/optimize/prove_program.h"

#include <map>

#include "core/base/facts.h"

namespace quern {

namespace {

// What a proof depends on, as text.
std::string question_of(const LaunchedKernel& code) {
  const ir::LaunchFacts& facts = code.facts;
  ir::Kernel kernel = code.kernel;
  kernel.name = kernel.comment = "";
  std::string out = print_cuda(kernel);
  for (const Dim3& size : {facts.grid, facts.cluster})
    out += std::to_string(size.x) + " " + std::to_string(size.y) + " " + std::to_string(size.z) + "\n";
  for (const ir::ParameterFacts& parameter : facts.parameters) {
    out += std::to_string(parameter.elements);
    if (parameter.map)
      for (const auto& numbers : {parameter.map->shape, parameter.map->strides, parameter.map->box})
        for (int64_t number : numbers) out += " " + std::to_string(number);
    out += "\n";
  }
  return out;
}

}  // namespace

std::vector<KernelProof> prove_program(const Emitted& program, Solver* solver,
                                       std::chrono::milliseconds limit) {
  std::vector<KernelProof> out;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < program.code.size(); ++i) {
    const LaunchedKernel& code = program.code[i];
    const auto [at, fresh] = known.try_emplace(question_of(code), out.size());
    if (fresh)
      out.push_back({code.kernel.name, 1, prove_kernel(code.kernel, code.facts, {limit, solver})});
    else
      ++out[at->second].launches;
  }
  return out;
}

std::string proof_fact(const std::vector<KernelProof>& proofs) {
  std::string text;
  for (const KernelProof& each : proofs)
    text += (text.empty() ? "" : ", ") + each.kernel + " " + each.proof.summary();
  return print_fact("proof", text);
}

const KernelProof* find_disproof(const std::vector<KernelProof>& proofs) {
  for (const KernelProof& each : proofs)
    if (each.proof.disproof()) return &each;
  return nullptr;
}

}  // namespace quern
