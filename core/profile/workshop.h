// Makes the code of programs on threads, while others are checked and timed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/plan.h"
#include "core/base/target.h"
#include "core/codegen/arithmetic_verifier.h"
#include "core/graph/graph.h"
#include "core/jit/compiler.h"
#include "core/optimize/program.h"
#include "core/optimize/prove_program.h"
#include "core/prove/solver.h"

namespace quern {

struct MadeProgram {
  size_t number = 0;  // of the program in the list
  Result<Plan> plan;  // or why there is none
  bool tf32 = false;
  double seconds = 0;                      // that its code took; 0: it was there
  std::map<size_t, LaunchRange> launches;  // of its plan, by the kernels of its muGraph that they compute
};

struct WorkshopOptions {
  unsigned jobs = 4;
  bool allow_tf32 = false;
  MakeSolver* make_solver = nullptr;  // for proofs; without it they are by intervals alone
};

class Workshop {
 public:
  // All must outlive it. Without a compiler programs that have no code are refused.
  Workshop(const Graph& graph, const Target& target, const std::vector<Program>& programs, Compiler* compiler,
           const WorkshopOptions& options);
  ~Workshop();

  // A finished program, the first of the list among those that are; each once. Waits until then; nothing when
  // all were handed out, or it is `until`. Workers do not run far ahead of whoever takes.
  std::optional<MadeProgram> next(std::chrono::steady_clock::time_point until);
  // A certain program, likewise.
  std::optional<MadeProgram> next(size_t number, std::chrono::steady_clock::time_point until);
  // Threads begin nothing any more.
  void end();
  // The same, and waits for what is being compiled.
  void stop();
  // One that is not in the list yet, on the caller's thread.
  MadeProgram make(const Program& program, size_t number);

 private:
  void work();
  MadeProgram make(const Program& program, size_t number, ArithmeticVerifier& verifier);
  Result<Plan> make_baseline() const;
  Result<Plan> make_searched(const Program& program, ArithmeticVerifier& verifier, MadeProgram& made);
  Result<std::string> verdict_on(const std::string& text, const MuGraph& mugraph);

  const Graph& graph_;
  const Target& target_;
  const std::vector<Program>& programs_;
  Compiler* const compiler_;
  const WorkshopOptions options_;
  const std::string graph_text_;
  KnownProofs proofs_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool stopped_ = false;
  size_t begun_ = 0, taken_ = 0;
  std::map<size_t, MadeProgram> ready_;
  std::map<std::string, std::string> verdicts_;  // facts, by the muGraph's text
  std::vector<std::jthread> threads_;
};

}  // namespace quern
