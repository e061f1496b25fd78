// Proofs of what emitted programs do. Who includes it links `prove` and `z3_solver`.
#pragma once

#include "core/prove/prove_kernel.h"
#include "tests/codegen/mugraph_cases.h"
#include "tests/support/test.h"

namespace quern {

// Fails the test if a kernel of a case is not proved. In a build without Z3 nothing is asked.
inline void all_are_proved(const std::vector<MuGraphCase>& cases) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) return;
  ProveOptions options;
  options.solver = solver.get();
  for (const MuGraphCase& test : cases) {
    const EmittedMuGraph program = emitted(test);
    for (const LaunchedKernel& code : program.code) {
      const Proof proof = prove_kernel(code.kernel, code.facts, options);
      if (!proof.proved()) fail_test(test.label + ": " + proof.summary());
    }
  }
}

}  // namespace quern
