// The certificate of a plan: facts (core/base/facts.h) about what it is made from and what was checked. All
// but its compiler and how it was found can be computed again from what is stored with the plan.
#pragma once

#include <string>
#include <vector>

#include "core/base/plan.h"
#include "core/verify/certificate.h"

namespace quern {

// What a plan is made from, as texts; with the plan's target they give the same program again.
struct PlanSource {
  std::string graph;              // in canonical form where it is stored
  std::string mugraph, schedule;  // empty for a baseline
  std::string cuda;  // the complete program; of a baseline it need not be there, and is emitted again
};

// To be added to what the emitter says: the hashes of the texts and of the cubin, and the tools.
std::string source_facts(const PlanSource& source, const std::string& cubin, const std::string& compiler);

enum class Depth : uint8_t {
  hashes,   // those of the texts and of the cubin: microseconds
  program,  // also emits the program again, and makes the verdict again with the seed in the certificate
};

// What of the plan's certificate does not hold for what is stored with it: a sentence for each, none if all
// holds. What another version of Quern made is judged by its hashes only.
std::vector<std::string> certificate_faults(const Plan& plan, const PlanSource& stored, Depth depth);

}  // namespace quern
