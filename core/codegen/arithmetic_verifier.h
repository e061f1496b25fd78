// The second verdict on a muGraph, beside the field's (core/verify/verifier.h): whether it is right in the
// arithmetic of its kernels, for friendly and for hostile inputs.
//
// The muGraph, cut as its schedule says, is interpreted (core/codegen/interpreter.h) on a small instance:
// every grid, cluster and loop extent at least 2, ragged edges ragged; where sums overflow is asked of
// another one, whose sums are longer. All elements are compared with the f64 reference, each within its own
// bound (core/verify/reference.h). Needs neither a GPU nor a compiler.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/codegen/interpreter.h"
#include "core/mugraph/shrink.h"
#include "core/schedule/schedule.h"
#include "core/verify/arithmetic_verdict.h"
#include "core/verify/reference.h"

namespace quern {

struct ArithmeticOptions {
  uint64_t seed = 1;
  int draws = 16;  // of the inputs of each class; fewer where the instance is large
  // Asked in front of every draw. Once true, the verdict is undecided.
  std::function<bool()> stop = [] { return false; };
};

// For several programs of one graph: reference and bounds of an instance are computed once, and so is the
// verdict on schedules that differ in nothing that arithmetic depends on. Not for several threads.
class ArithmeticVerifier {
 public:
  // A valid graph, which must outlive this.
  explicit ArithmeticVerifier(const Graph& graph, const ArithmeticOptions& options = {});
  ~ArithmeticVerifier();
  // Never fails: what cannot be decided says why.
  ArithmeticVerdict judge(const MuGraph& mugraph, const Schedule& schedule);
  // With the muGraph's own counts and in f32, nothing approximate and no operand rounded.
  ArithmeticVerdict judge(const MuGraph& mugraph);

 private:
  struct Trial;
  class Trials;
  using Draw = std::pair<std::string, int>;  // class and number
  // A program on an instance.
  struct Run {
    Interpreter program;
    ShortIotas iotas;
    Trials& trials;
    int draws, floats;  // of a class of inputs; inputs of floats
  };

  ArithmeticVerdict judge_cut(const MuGraph& mugraph, const Schedule* schedule);
  Run prepare(Instance instance, const Schedule* schedule);
  bool run_trials(const Run& usual, const Run& of_sums, ArithmeticVerdict& out);
  static bool run_trial(const Run& run, Trial& trial, const std::string& cls, ArithmeticVerdict& out);

  const Graph& graph_;
  const ArithmeticOptions options_;
  std::map<std::string, std::unique_ptr<Trials>> trials_;  // by the small graph and what of it is read
  std::map<std::string, ArithmeticVerdict> known_;         // by what was interpreted
  std::optional<Draw> last_refusal_;
};

}  // namespace quern
