#include "core/prove/arithmetic.h"

#include <algorithm>
#include <bit>

namespace quern::proof {

using ir::Expr;
using ir::ExprKind;
using ir::ExprNode;
using ir::Interval;
using ir::Operator;
using ir::Scalar;

bool has_index_operands(const ExprNode& node) {
  return std::all_of(node.operands.begin(), node.operands.end(),
                     [](const Expr& operand) { return is_integer(operand.type()); });
}

Interval math_range(const Expr& expr, const ir::Ranges& ranges) {
  if (expr->kind == ExprKind::cast && ir::is_index(expr->operands[0].type()))
    return ranges.of(expr->operands[0]);
  return ranges.of(expr);
}

bool fits(Interval range, Scalar type) {
  switch (type) {
    case Scalar::i32:
      return range.low >= INT32_MIN && range.high <= INT32_MAX;
    case Scalar::u32:
      return range.low >= 0 && range.high <= UINT32_MAX;
    case Scalar::u64:
      return range.low >= 0;
    default:
      return true;
  }
}

bool never_wraps(const Expr& expr, const ir::Ranges& ranges) {
  if (ir::is_index(expr.type()) && !fits(math_range(expr, ranges), expr.type())) return false;
  return std::all_of(expr->operands.begin(), expr->operands.end(),
                     [&](const Expr& operand) { return never_wraps(operand, ranges); });
}

Expr opposite(const Expr& condition) {
  if (condition.is_number()) return ir::truth(condition->number == 0);
  if (condition->kind == ExprKind::operation && condition->operands.size() == 2) {
    const Expr &a = condition->operands[0], &b = condition->operands[1];
    const bool indices = ir::is_index(a.type()) && ir::is_index(b.type());
    switch (condition->op) {
      case Operator::both:
        return either(opposite(a), opposite(b));
      case Operator::either:
        return both(opposite(a), opposite(b));
      case Operator::less:
        if (indices) return less_equal(b, a);
        break;
      case Operator::less_equal:
        if (indices) return less(b, a);
        break;
      case Operator::equal:
        return operation(Operator::not_equal, a, b);
      case Operator::not_equal:
        return equal(a, b);
      default:
        break;
    }
  }
  return equal(condition, ir::truth(false));
}

Expr with_operands(const Expr& expr, std::vector<Expr> operands) {
  const ExprNode& node = expr.node();
  switch (node.kind) {
    case ExprKind::operation:
      return operands.size() == 2 ? operation(node.op, operands[0], operands[1]) : ir::negate(operands[0]);
    case ExprKind::select:
      return select(operands[0], operands[1], operands[2]);
    case ExprKind::cast:
      return cast(operands[0], node.type);
    case ExprKind::call:
      return call(node.function, node.type, std::move(operands), node.templates);
    default:
      return expr;
  }
}

namespace {

void gather(const Expr& expr, int64_t factor, Linear& out) {
  const ExprNode& node = expr.node();
  if (node.kind == ExprKind::number) {
    out.constant += factor * node.number;
    return;
  }
  if (node.kind == ExprKind::cast && ir::is_index(node.operands[0].type()))
    return gather(node.operands[0], factor, out);
  if (node.kind == ExprKind::operation && node.operands.size() == 2) {
    const Expr &a = node.operands[0], &b = node.operands[1];
    if (node.op == Operator::add || node.op == Operator::subtract) {
      gather(a, factor, out);
      return gather(b, node.op == Operator::add ? factor : -factor, out);
    }
    if (node.op == Operator::multiply && b.is_number()) return gather(a, factor * b->number, out);
    if (node.op == Operator::multiply && a.is_number()) return gather(b, factor * a->number, out);
  }
  out.terms.emplace_back(expr, factor);
}

}  // namespace

Linear linear_form(const Expr& expr) {
  Linear out;
  gather(expr, 1, out);
  return out;
}

Expr sum_of(const Linear& form) {
  Expr out = 0;
  for (const auto& [term, factor] : form.terms) out = out + cast(term, Scalar::i64) * factor;
  return out + form.constant;
}

// With what is already a number in it put together.
Expr add(const Expr& a, const Expr& b) {
  if (b.is_number() && a->kind == ExprKind::operation && a->op == Operator::add && a->operands[1].is_number())
    return a->operands[0] + (a->operands[1] + b);
  return a + b;
}

bool is_multiple(const Expr& expr, int64_t of) {
  if (of == 1) return true;
  const ExprNode& node = expr.node();
  auto all = [&] {
    return is_multiple(node.operands[node.operands.size() - 2], of) && is_multiple(node.operands.back(), of);
  };
  switch (node.kind) {
    case ExprKind::number:
      return node.number % of == 0;
    case ExprKind::cast:
      return ir::is_index(node.operands[0].type()) && is_multiple(node.operands[0], of);
    case ExprKind::select:
      return all();
    case ExprKind::operation:
      break;
    default:
      return false;
  }
  if (node.operands.size() != 2) return false;
  switch (node.op) {
    case Operator::add:
    case Operator::subtract:
    case Operator::bit_xor:
    case Operator::bit_or:
      return all();
    case Operator::bit_and:
      return is_multiple(node.operands[0], of) || is_multiple(node.operands[1], of);
    case Operator::multiply:
      for (size_t i : {size_t{0}, size_t{1}}) {
        if (!node.operands[i].is_number()) continue;
        const int64_t factor = node.operands[i]->number;
        if (factor == 0) return true;
        const int64_t part = std::min<int64_t>(of, factor & -factor);
        return is_multiple(node.operands[1 - i], of / part);
      }
      return is_multiple(node.operands[0], of) || is_multiple(node.operands[1], of);
    case Operator::modulo:
      return is_multiple(node.operands[0], of) && is_multiple(node.operands[1], of);
    default:
      return false;
  }
}

std::optional<int64_t> evaluate(const Expr& expr, const Values& values) {
  const ExprNode& node = expr.node();
  auto operand = [&](size_t i) { return evaluate(node.operands[i], values); };
  switch (node.kind) {
    case ExprKind::number:
      return node.number;
    case ExprKind::symbol: {
      const auto at = values.find(node.symbol.get());
      return at == values.end() ? std::nullopt : std::optional(at->second);
    }
    case ExprKind::cast: {
      if (!ir::is_index(node.type) || !is_integer(node.operands[0].type())) return {};
      const auto value = operand(0);
      return value ? std::optional(ir::convert_index(*value, node.type)) : std::nullopt;
    }
    case ExprKind::select: {
      const auto condition = operand(0);
      return condition ? operand(*condition ? 1 : 2) : std::nullopt;
    }
    case ExprKind::operation: {
      if (node.operands.size() != 2 || !has_index_operands(node)) return {};
      const auto a = operand(0);
      if (a && node.op == Operator::both && !*a) return 0;
      if (a && node.op == Operator::either && *a) return 1;
      const auto b = operand(1);
      if (node.op == Operator::both && b && !*b) return 0;
      if (node.op == Operator::either && b && *b) return 1;
      if (!a || !b) return {};
      const auto value = ir::compute(node.op, *a, *b);
      return value ? std::optional(ir::convert_index(*value, node.type)) : std::nullopt;
    }
    case ExprKind::call: {
      if (!ir::compute(node.function, 0, 0)) return {};
      const auto a = operand(0), b = operand(1);
      return a && b ? ir::compute(node.function, *a, *b) : std::nullopt;
    }
    default:
      return {};
  }
}

}  // namespace quern::proof
