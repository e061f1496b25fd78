// Proves of a kernel, for the full extents of its launch, that
//
//   bounds     every access lies in its memory
//   alignment  and is aligned as its instruction wants
//   writers    every element that the kernel is to write is written, and by one thread
//   races      no two threads touch the same bytes of shared memory, unless both read, or barriers are between
//   phases     arrivals and bytes of every mbarrier are those of its phases, and nobody waits forever
//
// Intervals decide most of it; of the rest Z3 is asked, about one access or one pair of accesses at a time,
// with thread, block and iterations as variables. What happens before what is found by going through the
// barriers (order.h). Loops that synchronise must have trip counts that are numbers.
//
// Taken for right without proof: what the prelude does inside a matrix tile of the baseline
// (device/matmul.cuh), that TMA writes no more than its box, and which registers the lanes of tensor cores
// exchange. Not asked: whether values are right, and whether what is read was written before.
#pragma once

#include <chrono>

#include "core/kernel/ir.h"
#include "core/kernel/launch_facts.h"
#include "core/prove/solver.h"

namespace quern {

struct ProofFinding {
  enum class Kind : uint8_t { unproved, disproved } kind = Kind::unproved;
  std::string rule;    // "bounds"
  std::string access;  // the statement
  std::string reason;  // what is not known; or block, thread and iteration, and what they do
};

struct Proof {
  std::vector<ProofFinding> findings;   // none: all is proved
  int by_intervals = 0, by_solver = 0;  // questions
  double seconds = 0;

  bool proved() const { return findings.empty(); }
  const ProofFinding* disproof() const;
  // "proved", "disproved: ...", or "unproved: ...", one line.
  std::string summary() const;
};

struct ProveOptions {
  std::chrono::milliseconds limit{2000};
  Solver* solver = nullptr;  // null: intervals alone
};

// The kernel keeps the rules of verify_kernel.
Proof prove_kernel(const ir::Kernel& kernel, const ir::LaunchFacts& facts, const ProveOptions& options);

}  // namespace quern
