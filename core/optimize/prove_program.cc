#include "core/optimize/prove_program.h"

#include "core/base/facts.h"

namespace quern {

namespace {

// What a proof depends on, as text.
std::string question_of(const LaunchedKernel& code) {
  const ir::LaunchFacts& facts = code.facts;
  ir::Kernel kernel = code.kernel;
  kernel.name = kernel.comment = "";
  std::string out = print_cuda(kernel) + std::to_string(kernel.shared_bytes) + "\n";
  for (const Dim3& size : {facts.grid, facts.cluster})
    out += std::to_string(size.x) + " " + std::to_string(size.y) + " " + std::to_string(size.z) + "\n";
  for (const ir::ParameterFacts& parameter : facts.parameters) {
    out += std::to_string(parameter.elements) + " " + std::to_string(parameter.alignment);
    if (const auto& map = parameter.map) {
      out += " " + std::string(dtype_name(map->dtype)) + " " + std::to_string(map->swizzle);
      for (const auto& numbers : {map->shape, map->strides, map->box})
        for (int64_t number : numbers) out += " " + std::to_string(number);
    }
    out += "\n";
  }
  return out;
}

}  // namespace

std::optional<Proof> KnownProofs::find(const std::string& question) const {
  const std::lock_guard lock(mutex_);
  const auto found = proofs_.find(question);
  return found == proofs_.end() ? std::nullopt : std::optional(found->second);
}

void KnownProofs::add(const std::string& question, const Proof& proof) {
  const std::lock_guard lock(mutex_);
  proofs_.emplace(question, proof);
}

size_t KnownProofs::size() const {
  const std::lock_guard lock(mutex_);
  return proofs_.size();
}

std::vector<KernelProof> prove_program(const Emitted& program, Solver* solver,
                                       std::chrono::milliseconds limit, KnownProofs* known) {
  std::vector<KernelProof> out;
  std::map<std::string, size_t> asked;
  for (const LaunchedKernel& code : program.code) {
    const std::string question = question_of(code);
    const auto [at, fresh] = asked.try_emplace(question, out.size());
    if (!fresh) {
      ++out[at->second].launches;
      continue;
    }
    std::optional<Proof> proof = known ? known->find(question) : std::nullopt;
    if (!proof) {
      proof = prove_kernel(code.kernel, code.facts, {limit, solver});
      // What was not decided in time may be the next time.
      if (known && (proof->proved() || proof->disproof())) known->add(question, *proof);
    }
    out.push_back({code.kernel.name, 1, std::move(*proof)});
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
