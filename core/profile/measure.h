// From the ranked programs of a graph to the one that is fastest on a GPU: each is made, checked, and timed
// beside the others; the best takes the place of what stands only if it is right, and faster beyond noise.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/base/target.h"
#include "core/graph/graph.h"
#include "core/jit/compiler.h"
#include "core/optimize/program.h"
#include "core/profile/bench.h"
#include "core/prove/solver.h"

namespace quern {

struct MeasureProgress {
  size_t programs = 0, tried = 0;
  double best_us = 0, baseline_us = 0;  // cold; 0: not known yet
  // The first plan that is right and faster than what stands, encoded, to be published now; else empty.
  std::string plan;
  Hash128 program;  // the one that it is
};

struct MeasureOptions {
  std::chrono::milliseconds budget{30000};
  unsigned jobs = 4;  // compilers at once
  size_t keep = 8;    // programs whose code is handed back
  bool allow_tf32 = false;
  MakeSolver* make_solver = nullptr;  // for the proofs of what is compiled here
  // The program that stands: one of the list. By default the baseline's.
  Hash128 standing = Program{}.name();
  // Measures nothing while others use more than this share of the GPU; 1: whatever they do.
  double most_disturbance = 0.1;
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(const MeasureProgress&)> on_progress;  // on the caller's thread
};

struct ProgramTiming {
  Hash128 program;
  double cold_ns = 0, hot_ns = 0;  // medians; 0: it was not timed
  uint32_t samples = 0;
  double error = 0;
  std::string refusal;  // why it may not run; empty: it is right
};

enum class MeasureEnd : uint8_t {
  finished,  // all programs were tried, or nothing better can be expected
  budget,    // time was up before that
  cancelled,
  disturbed,  // others used the GPU: try again later
  lost,       // the GPU is gone
};
const char* measure_end_name(MeasureEnd end);

struct MeasureResult {
  std::string device;
  // The winner's, encoded, of tier measured; empty when nothing could be decided.
  std::string plan;
  Program winner;
  bool replaces = false;  // it is another than what stands
  double cold_us = 0, baseline_us = 0;
  // All that were given, with the code of the best; and one of the fastest kernels of others, if it won.
  std::vector<Program> programs;
  std::vector<ProgramTiming> timings;  // of those that were tried
  MeasureEnd end = MeasureEnd::finished;
  std::string reason;  // of the end and of the choice, for people
  std::string report;  // a line a program
};

// Opens the bench, which takes as long as the graph's reference takes to compile. The caller's, it must outlive the call.
using GetBench = std::function<Result<Bench*>()>;

// `programs`, best first, with the baseline's among them or added to them. Those without code are compiled if
// there is a compiler, which may be null. What goes wrong with a program or with the GPU is in the result;
// INVALID_ARGUMENT when the list is of no use, and what opening the bench says.
Result<MeasureResult> measure(const Graph& graph, const Target& target, std::vector<Program> programs,
                              Compiler* compiler, const GetBench& open, const MeasureOptions& options);

// On a bench that is open.
inline Result<MeasureResult> measure(const Graph& graph, const Target& target, std::vector<Program> programs,
                                     Compiler* compiler, Bench& bench, const MeasureOptions& options) {
  return measure(
      graph, target, std::move(programs), compiler, [&]() -> Result<Bench*> { return &bench; }, options);
}

}  // namespace quern
