#include "core/prove/prove_kernel.h"

#include "core/prove/questions.h"

namespace quern {

const ProofFinding* Proof::disproof() const {
  for (const ProofFinding& finding : findings)
    if (finding.kind == ProofFinding::Kind::disproved) return &finding;
  return nullptr;
}

std::string Proof::summary() const {
  if (proved()) return "proved";
  const ProofFinding& shown = disproof() ? *disproof() : findings[0];
  return std::string(disproof() ? "disproved: " : "unproved: ") + shown.rule + ": " + shown.access + ": " +
         shown.reason +
         (findings.size() > 1 ? " (and " + std::to_string(findings.size() - 1) + " more)" : "");
}

Proof prove_kernel(const ir::Kernel& kernel, const ir::LaunchFacts& facts, const ProveOptions& options) {
  using namespace proof;
  Questions questions(kernel, facts, options);
  questions.trace() = trace_kernel(kernel, facts, Follow::accesses);
  if (const std::string& problem = questions.trace().problem; !problem.empty()) {
    questions.find(ProofFinding::Kind::unproved, "bounds", "", problem);
  } else {
    prove_bounds(questions);
    prove_writers(questions);
  }
  prove_order(questions);
  return questions.finish();
}

}  // namespace quern
