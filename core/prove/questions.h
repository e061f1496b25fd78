// Questions about a kernel's trace, each a list of conditions that must never all hold: answered by
// intervals, else by the solver, and what comes of them as findings of the proof.
#pragma once

#include "core/prove/prove_kernel.h"
#include "core/prove/trace.h"

namespace quern::proof {

using ir::Expr;
using ir::Symbol;

class Questions {
 public:
  using Time = std::chrono::steady_clock;

  Questions(const ir::Kernel& kernel, const ir::LaunchFacts& facts, const ProveOptions& options)
      : kernel_(kernel), facts_(facts), options_(options) {}

  const ir::Kernel& kernel() const { return kernel_; }
  const ir::LaunchFacts& facts() const { return facts_; }
  bool is_out_of_time() const { return Time::now() - start_ > options_.limit; }

  // What questions are about.
  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }
  // Before a trace of another kind: what was answered about the last one.
  void forget();

  // Whether the conditions can all hold. Each answer is kept.
  SolverAnswer ask(std::vector<Expr> conditions);
  // Notes that a question was answered without asking.
  void count_known() { ++out_.by_intervals; }
  // Notes what comes of a question whose answer should be never.
  void conclude(const SolverAnswer& answer, const std::string& rule, const Event& event,
                const std::string& what);
  void find(ProofFinding::Kind kind, const std::string& rule, const std::string& access,
            const std::string& reason);

  // What stands for a variable of another thread, maybe of another block.
  Symbol twin(const Symbol& symbol, bool other_block);

  Proof finish();

 private:
  SolverAnswer by_intervals();
  std::string describe(const SolverAnswer& answer, const Event& event) const;

  const ir::Kernel& kernel_;
  const ir::LaunchFacts& facts_;
  const ProveOptions& options_;
  const Time::time_point start_ = Time::now();
  Trace trace_;
  std::map<const ir::SymbolData*, Symbol> twins_;
  std::map<std::string, SolverAnswer> answers_;
  Proof out_;
};

std::string text_of(const Event& event);
std::vector<Expr> with(std::vector<Expr> conditions, const Expr& more);

// The same expression for another thread, maybe of another block.
class OtherThread {
 public:
  OtherThread(Questions& questions, bool other_block) : questions_(questions), other_block_(other_block) {}
  Expr operator()(const Expr& expr);
  Symbol twin(const Symbol& symbol) { return questions_.twin(symbol, other_block_); }

 private:
  Questions& questions_;
  const bool other_block_;
};

// Whether accesses of these places touch the same bytes.
Expr overlap(const Access& a, const Expr& at, const Access& b, const Expr& other);

// The rules. Of the trace of accesses: each is in bounds and aligned, and tensor maps describe no more than
// there is; every element of what the kernel writes has one writer.
void prove_bounds(Questions& questions);
void prove_writers(Questions& questions);
// Traces the order of events, for all blocks at once or for each: barriers and mbarriers fit their phases,
// and no two threads touch the same shared bytes without something that orders them.
void prove_order(Questions& questions);

}  // namespace quern::proof
