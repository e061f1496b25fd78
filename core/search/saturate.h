// Applies the axioms to an e-graph until nothing new comes, or a limit is reached.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/search/axiom.h"

namespace quern {

enum class StopReason : uint8_t { saturated, node_limit, iteration_limit, time_limit };
const char* stop_reason_name(StopReason reason);

struct SaturationLimits {
  size_t nodes = 20000;
  int iterations = 30;
  std::chrono::milliseconds time{1000};
};

struct SaturationReport {
  StopReason stop = StopReason::saturated;
  struct Iteration {
    size_t nodes, classes, merges;
    double seconds;
  };
  std::vector<Iteration> iterations;
  std::vector<size_t> merges_by_axiom;  // in the order of all_axioms()
};

SaturationReport saturate(EGraph& egraph, std::span<const Axiom> axioms, const SaturationLimits& limits = {});

// Replays the justifications: each must be an instance of its axiom whose two sides are in one class now.
// Returns the first that is not, as text; empty when all hold.
std::string check_justifications(const EGraph& egraph, std::span<const Axiom> axioms);

}  // namespace quern
