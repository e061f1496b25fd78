#include "core/prove/questions.h"

#include <algorithm>
#include <set>

#include "core/kernel/verify_kernel.h"
#include "core/prove/arithmetic.h"

namespace quern::proof {

using ir::Interval;

std::string text_of(const Event& event) { return event.stmt ? ir::statement_text(*event.stmt) : ""; }

std::vector<Expr> with(std::vector<Expr> conditions, const Expr& more) {
  conditions.push_back(more);
  return conditions;
}

void Questions::forget() {
  answers_.clear();
  twins_.clear();
}

void Questions::find(ProofFinding::Kind kind, const std::string& rule, const std::string& access,
                     const std::string& reason) {
  const ProofFinding found{kind, rule, access, reason};
  for (const ProofFinding& other : out_.findings)
    if (other.rule == rule && other.access == access && other.kind == kind) return;
  out_.findings.push_back(found);
}

SolverAnswer Questions::ask(std::vector<Expr> conditions) {
  const auto false_one = [](const Expr& each) { return each.is_number(0); };
  if (std::any_of(conditions.begin(), conditions.end(), false_one)) return by_intervals();
  std::erase_if(conditions, [](const Expr& each) { return each.is_number(); });
  ir::Ranges known = trace_.ranges;
  for (const Expr& each : conditions) {
    if (!never_wraps(each, known)) continue;
    const Interval holds = known.of(each);
    if (holds.is_one() && !holds.low) return by_intervals();
    known.assume(each, true);
  }
  for (const Expr& each : conditions)
    if (const Interval holds = known.of(each); holds.is_one() && !holds.low && never_wraps(each, known))
      return by_intervals();
  std::string key;
  for (const Expr& each : conditions) key += ir::print(each) + ";";
  const auto kept = answers_.find(key);
  if (kept != answers_.end()) return kept->second;
  const auto left =
      options_.limit - std::chrono::duration_cast<std::chrono::milliseconds>(Time::now() - start_);
  SolverAnswer answer;
  if (options_.solver && left.count() > 0) {
    // One that is hard leaves time for the others.
    answer = options_.solver->ask(conditions, trace_.ranges, left / 2);
    ++out_.by_solver;
  }
  return answers_.emplace(std::move(key), std::move(answer)).first->second;
}
SolverAnswer Questions::by_intervals() {
  ++out_.by_intervals;
  return {SolverAnswer::Kind::never, {}, true};
}

void Questions::conclude(const SolverAnswer& answer, const std::string& rule, const Event& event,
                         const std::string& what) {
  if (answer.kind == SolverAnswer::Kind::never) return;
  if (answer.kind == SolverAnswer::Kind::unknown)
    return find(ProofFinding::Kind::unproved, rule, text_of(event), "not decided in time: " + what);
  const std::string place = describe(answer, event);
  find(answer.certain ? ProofFinding::Kind::disproved : ProofFinding::Kind::unproved, rule, text_of(event),
       (answer.certain ? "" : "depends on what memory holds: ") + place + ": " + what);
}

std::string Questions::describe(const SolverAnswer& answer, const Event& event) const {
  auto value = [&](const Symbol& symbol) {
    const auto at = answer.values.find(symbol.get());
    return at == answer.values.end() ? trace_.ranges.of(Expr(symbol)).low : at->second;
  };
  const Places& places = trace_.places;
  std::string out = "block (";
  for (size_t i = 0; i < 3; ++i) out += (i ? ", " : "") + std::to_string(value(places.block[i]));
  out += "), thread " + std::to_string(value(places.thread));
  for (const auto& [symbol, number] : answer.values)
    if (symbol != places.thread.get() && symbol != places.block[0].get() && symbol != places.block[1].get() &&
        symbol != places.block[2].get())
      out += ", " + symbol->name.substr(0, symbol->name.find(" of ")) + " " + std::to_string(number);
  return out + (event.iteration.empty() ? "" : ", " + event.iteration);
}
Symbol Questions::twin(const Symbol& symbol, bool other_block) {
  const auto& block = trace_.places.block;
  if (!other_block && std::find(block.begin(), block.end(), symbol) != block.end()) return symbol;
  Symbol& out = twins_[symbol.get()];
  if (!out) {
    ir::SymbolData data = *symbol;
    data.name = "other " + data.name;
    out = std::make_shared<const ir::SymbolData>(std::move(data));
    trace_.ranges.set(*out, trace_.ranges.of(Expr(symbol)));
  }
  return out;
}

Proof Questions::finish() {
  out_.seconds = std::chrono::duration<double>(Time::now() - start_).count();
  return std::move(out_);
}

Expr OtherThread::operator()(const Expr& expr) {
  std::set<Symbol> symbols;
  ir::visit_nodes(expr, [&](const ir::ExprNode& node) {
    if (node.symbol && node.symbol->space == ir::Space::variable) symbols.insert(node.symbol);
  });
  Expr out = expr;
  for (const Symbol& symbol : symbols) out = ir::replaced(out, symbol, Expr(twin(symbol)));
  return out;
}

Expr overlap(const Access& a, const Expr& at, const Access& b, const Expr& other) {
  const int64_t unit = std::max(a.bytes, b.bytes);
  // Where both are aligned to their own sizes, the smaller one lies in the larger one.
  const bool nested = a.bytes == a.alignment && b.bytes == b.alignment;
  if (nested && a.bytes == b.bytes) return equal(at, other);
  if (nested) return equal(at / unit, other / unit);
  return both(less(at, other + b.bytes), less(other, at + a.bytes));
}
}  // namespace quern::proof
