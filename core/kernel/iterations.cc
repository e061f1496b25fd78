#include "core/kernel/iterations.h"

namespace quern::ir {

namespace {

// base + iteration * slope, of i64.
struct Affine {
  Expr base;
  int64_t slope;
};

class Finder {
 public:
  Finder(const Symbol& iteration, const Expr& trip_count, bool certain)
      : iteration_(iteration), trip_count_(trip_count), certain_(certain) {}

  // Where the condition, or its opposite, holds.
  Iterations holds(const Expr& condition, bool opposite) const {
    const ExprNode& node = condition.node();
    if (!depends(condition)) {
      const Expr none = opposite ? condition : equal(condition, truth(false));
      return {0, select(none, Expr(0), trip_count_)};
    }
    if (node.kind != ExprKind::operation || node.operands.size() != 2) return unknown();
    const Expr &a = node.operands[0], &b = node.operands[1];
    if (node.op == Operator::both || node.op == Operator::either) {
      const Iterations first = holds(a, opposite), second = holds(b, opposite);
      return (node.op == Operator::both) != opposite ? both_of(first, second) : one_of(first, second);
    }
    if (node.op == Operator::equal && b.is_number() && b.type() == Scalar::boolean)
      return holds(a, opposite == (b->number != 0));
    if (node.op == Operator::less) return opposite ? at_least(a, b, 0) : at_least(b, a, 1);
    if (node.op == Operator::less_equal) return opposite ? at_least(a, b, 1) : at_least(b, a, 0);
    return unknown();
  }

 private:
  Iterations unknown() const { return {0, certain_ ? Expr(0) : trip_count_}; }

  bool depends(const Expr& expr) const {
    bool found = false;
    visit_nodes(expr, [&](const ExprNode& node) { found |= node.symbol == iteration_; });
    return found;
  }

  static Iterations both_of(const Iterations& a, const Iterations& b) {
    return {max_of(a.begin, b.begin), min_of(a.end, b.end)};
  }
  // All of both and what is between them; or one of them, the longer one.
  Iterations one_of(const Iterations& a, const Iterations& b) const {
    if (certain_) {
      const Expr first = less(b.end - b.begin, a.end - a.begin);
      return {select(first, a.begin, b.begin), select(first, a.end, b.end)};
    }
    const Expr no_a = less_equal(a.end, a.begin), no_b = less_equal(b.end, b.begin);
    return {select(no_a, b.begin, select(no_b, a.begin, min_of(a.begin, b.begin))),
            select(no_a, b.end, select(no_b, a.end, max_of(a.end, b.end)))};
  }

  std::optional<Affine> affine(const Expr& expr) const {
    if (!depends(expr)) return Affine{cast(expr, Scalar::i64), 0};
    const ExprNode& node = expr.node();
    if (node.kind == ExprKind::symbol) return Affine{cast(Expr(0), Scalar::i64), 1};
    if (node.kind != ExprKind::operation || node.operands.size() != 2) return std::nullopt;
    const auto a = affine(node.operands[0]), b = affine(node.operands[1]);
    if (!a || !b) return std::nullopt;
    if (node.op == Operator::add) return Affine{a->base + b->base, a->slope + b->slope};
    if (node.op == Operator::subtract) return Affine{a->base - b->base, a->slope - b->slope};
    if (node.op != Operator::multiply) return std::nullopt;
    for (const auto& [number, other] : {std::pair(a, b), std::pair(b, a)})
      if (number->slope == 0 && number->base.is_number())
        return Affine{other->base * number->base, other->slope * number->base->number};
    return std::nullopt;
  }

  // Where a is at least b + least.
  Iterations at_least(const Expr& a, const Expr& b, int64_t least) const {
    if (!is_index(a.type())) return unknown();
    const auto above = affine(a), below = affine(b);
    if (!above || !below) return unknown();
    // base + iteration * slope is not negative
    const Expr zero = cast(Expr(0), Scalar::i64), count = cast(trip_count_, Scalar::i64),
               base = above->base - below->base - cast(Expr(least), Scalar::i64);
    const int64_t slope = above->slope - below->slope;
    if (slope == 0) return {0, select(less(base, zero), Expr(0), trip_count_)};
    auto rounded_up = [&](const Expr& number, int64_t by) {
      return cast(min_of(max_of(number + cast(Expr(by - 1), Scalar::i64), zero) / by, count), Scalar::i32);
    };
    if (slope > 0) return {rounded_up(zero - base, slope), trip_count_};
    return {0, rounded_up(base + cast(Expr(1), Scalar::i64), -slope)};
  }

  const Symbol& iteration_;
  const Expr& trip_count_;
  const bool certain_;
};

}  // namespace

Iterations iterations_possible(const Expr& condition, const Symbol& iteration, const Expr& trip_count) {
  return Finder(iteration, trip_count, false).holds(condition, false);
}

Iterations iterations_certain(const Expr& condition, const Symbol& iteration, const Expr& trip_count) {
  return Finder(iteration, trip_count, true).holds(condition, false);
}

}  // namespace quern::ir
