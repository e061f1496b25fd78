#include <z3++.h>

#include <algorithm>
#include <bit>

#include "core/prove/arithmetic.h"
#include "core/prove/solver.h"

namespace quern {

using namespace proof;

namespace {

using ir::Expr;
using ir::ExprKind;
using ir::ExprNode;
using ir::Interval;
using ir::Operator;
using ir::Ranges;

// A question: numbers are signed bit vectors in which nothing overflows; where C++ wraps, so do they.
class Question {
 public:
  Question(z3::context& context, const Ranges& ranges, unsigned width)
      : context_(context), ranges_(ranges), width_(width) {}

  z3::expr condition(const Expr& expr) {
    const ExprNode& node = expr.node();
    if (node.kind == ExprKind::number) return context_.bool_val(node.number != 0);
    if (node.kind == ExprKind::operation && node.op == Operator::both)
      return condition(node.operands[0]) && condition(node.operands[1]);
    if (node.kind == ExprKind::operation && node.op == Operator::either)
      return condition(node.operands[0]) || condition(node.operands[1]);
    if (node.kind == ExprKind::operation && is_comparison(node.op) && has_index_operands(node)) {
      const z3::expr a = number(node.operands[0]), b = number(node.operands[1]);
      switch (node.op) {
        case Operator::less:
          return z3::slt(a, b);
        case Operator::less_equal:
          return z3::sle(a, b);
        case Operator::equal:
          return a == b;
        default:
          return a != b;
      }
    }
    return number(expr) != value(0);
  }

  z3::expr number(const Expr& expr) {
    const auto known = known_.find(&expr.node());
    if (known != known_.end()) return known->second;
    const z3::expr out = wrapped(expr, made(expr));
    known_.emplace(&expr.node(), out);
    return out;
  }

  void bound(z3::solver& solver) const {
    for (const auto& [name, variable] : variables_) {
      solver.add(z3::sle(value(variable.range.low), variable.term));
      solver.add(z3::sle(variable.term, value(variable.range.high)));
    }
  }
  void read(const z3::model& model, SolverAnswer& answer) const {
    for (const auto& [name, variable] : variables_) {
      const z3::expr term = model.eval(variable.term, true);
      uint64_t bits = 0;
      if (!term.is_numeral_u64(bits)) continue;
      const unsigned unused = 64 - width_;
      if (variable.symbol) answer.values[variable.symbol] = static_cast<int64_t>(bits << unused) >> unused;
      answer.certain &= variable.symbol && variable.symbol->name.find(kUnknown) == std::string::npos;
    }
  }

 private:
  struct Variable {
    const ir::SymbolData* symbol;  // null: of a value that is not known
    z3::expr term;
    Interval range;
  };

  z3::expr value(int64_t number) const {
    return context_.bv_val(
        static_cast<uint64_t>(number) & (width_ == 64 ? ~uint64_t{0} : (uint64_t{1} << width_) - 1), width_);
  }

  z3::expr variable(const std::string& name, const ir::SymbolData* symbol, Interval range) {
    const auto at = variables_.find(name);
    if (at != variables_.end()) return at->second.term;
    const z3::expr term = context_.bv_const(name.c_str(), width_);
    variables_.emplace(name, Variable{symbol, term, range});
    return term;
  }

  z3::expr wrapped(const Expr& expr, const z3::expr& term) const {
    if (!ir::is_index(expr.type()) || never_wraps(expr, ranges_) || ir::bytes_of(expr.type()) * 8 >= width_)
      return term;
    const unsigned bits = static_cast<unsigned>(ir::bytes_of(expr.type()) * 8);
    const z3::expr low = term.extract(bits - 1, 0);
    return expr.type() == ir::Scalar::u32 ? z3::zext(low, width_ - bits) : z3::sext(low, width_ - bits);
  }

  z3::expr made(const Expr& expr) {
    const ExprNode& node = expr.node();
    switch (node.kind) {
      case ExprKind::number:
        return value(node.number);
      case ExprKind::symbol:
        if (node.symbol->space == ir::Space::variable && is_integer(node.type))
          return variable(
              node.symbol->name + "@" + std::to_string(reinterpret_cast<uintptr_t>(node.symbol.get())),
              node.symbol.get(), ranges_.of(expr));
        break;
      case ExprKind::cast:
        if (ir::is_index(node.operands[0].type()) && ir::is_index(node.type)) return number(node.operands[0]);
        break;
      case ExprKind::select:
        if (!is_integer(node.type)) break;
        return z3::ite(condition(node.operands[0]), number(node.operands[1]), number(node.operands[2]));
      case ExprKind::operation:
        if (is_comparison(node.op) ? has_index_operands(node) : node.type == ir::Scalar::boolean)
          return z3::ite(condition(expr), value(1), value(0));
        if (ir::is_index(node.type) && node.operands.size() == 2) return binary(node);
        break;
      case ExprKind::call:
        if (ir::compute(node.function, 0, 0)) {
          const z3::expr a = number(node.operands[0]), b = number(node.operands[1]);
          const bool first = node.function == ir::Function::min_index;
          return z3::ite(z3::sle(a, b), first ? a : b, first ? b : a);
        }
        break;
      default:
        break;
    }
    return variable("?" + ir::print(expr), nullptr, ranges_.of(expr));
  }

  z3::expr binary(const ExprNode& node) {
    const z3::expr a = number(node.operands[0]), b = number(node.operands[1]);
    const bool natural = is_natural(node.operands[0]) && is_natural(node.operands[1]);
    switch (node.op) {
      case Operator::add:
        return a + b;
      case Operator::subtract:
        return a - b;
      case Operator::multiply:
        return a * b;
      case Operator::divide:
        return quotient(node, a, b, natural);
      case Operator::modulo:
        return remainder(node, a, b, natural);
      case Operator::shift_left:
        return z3::shl(a, b);
      case Operator::shift_right:
        return natural ? z3::lshr(a, b) : z3::ashr(a, b);
      case Operator::bit_and:
        return a & b;
      case Operator::bit_xor:
        return a ^ b;
      default:
        return a | b;
    }
  }

  bool is_natural(const Expr& expr) const {
    const bool is_unsigned = expr.type() == ir::Scalar::u32 || expr.type() == ir::Scalar::u64;
    return never_wraps(expr, ranges_) ? ranges_.of(expr).low >= 0 : is_unsigned;
  }
  static int power_of(const Expr& divisor) {
    return divisor.is_number() && divisor->number > 0 &&
                   std::has_single_bit(static_cast<uint64_t>(divisor->number))
               ? std::countr_zero(static_cast<uint64_t>(divisor->number))
               : -1;
  }
  z3::expr quotient(const ExprNode& node, const z3::expr& a, const z3::expr& b, bool natural) {
    const int power = power_of(node.operands[1]);
    if (natural && power >= 0) return z3::lshr(a, value(power));
    return natural ? z3::udiv(a, b) : a / b;
  }
  z3::expr remainder(const ExprNode& node, const z3::expr& a, const z3::expr& b, bool natural) {
    if (natural && power_of(node.operands[1]) >= 0) return a & value(node.operands[1]->number - 1);
    return natural ? z3::urem(a, b) : z3::srem(a, b);
  }

  z3::context& context_;
  const Ranges& ranges_;
  const unsigned width_;
  std::map<const ExprNode*, z3::expr> known_;
  std::map<std::string, Variable> variables_;
};

class Z3Solver : public Solver {
 public:
  SolverAnswer ask(const std::vector<Expr>& conditions, const Ranges& ranges,
                   std::chrono::milliseconds limit) override {
    SolverAnswer answer;
    try {
      unsigned width = 2;
      for (const Expr& condition : conditions) width = std::max(width, bits_of(condition, ranges));
      z3::solver solver(context_, "QF_BV");
      z3::params parameters(context_);
      parameters.set("timeout", static_cast<unsigned>(std::max<int64_t>(1, limit.count())));
      solver.set(parameters);
      Question question(context_, ranges, std::min(width, 64u));
      for (const Expr& condition : conditions) solver.add(question.condition(condition));
      question.bound(solver);
      switch (solver.check()) {
        case z3::unsat:
          answer.kind = SolverAnswer::Kind::never;
          break;
        case z3::sat:
          answer.kind = SolverAnswer::Kind::sometimes;
          question.read(solver.get_model(), answer);
          break;
        default:
          break;
      }
    } catch (const z3::exception&) {
      answer.kind = SolverAnswer::Kind::unknown;
    }
    return answer;
  }

 private:
  // Of the largest number that comes up, with its sign.
  static unsigned bits_of(const Expr& expr, const Ranges& ranges) {
    unsigned bits = 2;
    for (const Expr& operand : expr->operands) bits = std::max(bits, bits_of(operand, ranges));
    if (!is_integer(expr.type())) return bits;
    if (!never_wraps(expr, ranges))
      bits = std::max<unsigned>(bits, static_cast<unsigned>(ir::bytes_of(expr.type()) * 8 + 2));
    for (const Interval range : {math_range(expr, ranges), ranges.of(expr)})
      for (int64_t end : {range.low, range.high})
        bits = std::max(bits, static_cast<unsigned>(
                                  std::bit_width(static_cast<uint64_t>(end < 0 ? -(end + 1) : end)) + 2));
    return bits;
  }

  z3::context context_;
};

}  // namespace

std::unique_ptr<Solver> make_z3_solver() { return std::make_unique<Z3Solver>(); }

}  // namespace quern
