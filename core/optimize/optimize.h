// From a graph to the best program that the search leads to: its candidates times their schedules, ranked by
// the model, emitted, judged and compiled from the best on until one does.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/base/plan.h"
#include "core/jit/compiler.h"
#include "core/optimize/program.h"
#include "core/prove/solver.h"
#include "core/schedule/optimizer.h"
#include "core/schedule/schedule.h"
#include "core/search/search.h"
#include "core/verify/arithmetic_verdict.h"

namespace quern {

struct OptimizeResult {
  Plan plan;      // of tier modelled; without a cubin when there is none
  double us = 0;  // by the model of schedules
  // What the plan was made from; with the graph they give the same program again.
  std::string mugraph, schedule;
  std::string cuda;  // the complete text that was compiled
  // A line for the search, one for each candidate: what became of it, one for what was compiled, and one for
  // each choice of the plan's blocks: what it costs, greedy and optimal.
  std::string report;
  std::string reason;      // why there is no plan
  std::string state;       // of the search, to continue from; empty when it is finished
  bool timed_out = false;  // with more time it may find more
  // What can be measured, or made from its texts: the baseline's program, those that were kept, with their plan, then the
  // best-ranked ones, best first, in turn with some that vary all kernels of the best muGraph (Ranking::vary_all); without
  // those that are known to be refused.
  std::vector<Program> programs;
  uint64_t search_ns = 0, emit_ns = 0, judge_ns = 0, compile_ns = 0;

  bool found() const { return !plan.cubin.empty(); }
};

struct OptimizeOptions {
  SearchOptions search;                    // with a limit of its own; its `cancel` ends all of it
  std::chrono::milliseconds limit{30000};  // of the search and what follows it
  size_t schedules = 64;                   // of a candidate at most
  size_t list = 64;                        // programs in the result's list at most
  size_t keep = 1;                         // of them compiled, if as many can be
  size_t compiles = 12;                    // programs for the compiler at most, beyond those that are kept
  bool allow_tf32 = false;                 // f32 products may be computed from operands rounded to tf32
  Optimizer* optimizer = nullptr;          // of the choices of their blocks; without it they are greedy
  Solver* solver = nullptr;  // for the proofs of what is kept; without it they are by intervals alone
  // Judges the arithmetic of every program before it is emitted; empty: an ArithmeticVerifier of the graph.
  std::function<ArithmeticVerdict(const MuGraph&, const Schedule&)> judge;
  // Told after the search, and when there is a plan, what the result would be if all ended there: what has
  // been found outlives a process that is killed. May be empty.
  std::function<void(const OptimizeResult& so_far)> progress;
};

// Not an error: that there is no program, or no time for one. INVALID_ARGUMENT for options that make no
// sense.
Result<OptimizeResult> optimize(const Graph& graph, const Target& target, Compiler& compiler,
                                const OptimizeOptions& options);

}  // namespace quern
