// What is proved of the kernels of a program.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "core/codegen/baseline.h"
#include "core/prove/prove_kernel.h"

namespace quern {

struct KernelProof {
  std::string kernel;  // its name
  int launches = 1;    // that have this proof
  Proof proof;
};

// What was proved, for programs that have kernels in common. Safe to use from any thread.
class KnownProofs {
 public:
  std::optional<Proof> find(const std::string& question) const;
  void add(const std::string& question, const Proof& proof);
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Proof> proofs_;
};

// Each kernel once, unless launches differ in what they are launched on; what is `known` is not proved again. `limit` is for one
// kernel.
std::vector<KernelProof> prove_program(const Emitted& program, Solver* solver,
                                       std::chrono::milliseconds limit = ProveOptions{}.limit,
                                       KnownProofs* known = nullptr);

// A line for the certificate: "proof: q0_block proved, q1_block unproved: ...".
std::string proof_fact(const std::vector<KernelProof>& proofs);
// The first kernel that is disproved, null if none is.
const KernelProof* find_disproof(const std::vector<KernelProof>& proofs);

}  // namespace quern
