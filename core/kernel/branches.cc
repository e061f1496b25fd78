#include "core/kernel/branches.h"

#include <algorithm>

#include "core/kernel/builder.h"
#include "core/kernel/divergence.h"

namespace quern::ir {

namespace {

// Operations on the way to a value, but for those of indices.
int64_t operations_of(const Expr& expr) {
  const ExprNode& node = expr.node();
  if (node.kind == ExprKind::element || node.kind == ExprKind::address) return 0;
  int64_t count = node.kind == ExprKind::operation || node.kind == ExprKind::call ||
                  node.kind == ExprKind::cast || node.kind == ExprKind::select;
  for (const Expr& operand : node.operands) count += operations_of(operand);
  return count;
}

bool is_long(const Expr& expr) {
  constexpr int64_t kFew = 3;  // operations that compilers would rather do in vain
  return operations_of(expr) > kFew;
}

// Whether it may be computed where nobody asked for it.
bool may_be_in_vain(const Expr& expr) {
  bool may = true;
  visit_nodes(expr, [&](const ExprNode& node) {
    if (node.symbol && node.symbol->space != Space::variable && node.symbol->space != Space::registers)
      may = false;
    if (node.kind == ExprKind::call && level_of(node.function) != Level::thread) may = false;
    if (node.kind == ExprKind::operation && node.type != Scalar::f32 &&
        (node.op == Operator::divide || node.op == Operator::modulo))
      may &= node.operands[1].is_number();
  });
  return may;
}

// Puts long arms in front of the statements that choose from them.
class Hoister {
 public:
  Body of(const Body& body) {
    Body out;
    for (const Stmt& stmt : body) {
      now_ = &out;
      out.push_back(std::visit(*this, stmt.is));
    }
    return out;
  }

  Stmt operator()(Assign assign) {
    assign.value = without(assign.value);
    return assign;
  }
  Stmt operator()(For loop) {
    loop.body = of_inner(loop.body);
    return loop;
  }
  Stmt operator()(const If& branch) { return If{branch.condition, of_inner(branch.then)}; }
  Stmt operator()(const Scope& scope) { return Scope{of_inner(scope.body)}; }
  Stmt operator()(WarpRole role) {
    role.body = of_inner(role.body);
    return role;
  }
  template <class Other>
  Stmt operator()(const Other& other) {
    return other;
  }

 private:
  Body of_inner(const Body& body) {
    Body* const outer = now_;
    Body out = of(body);
    now_ = outer;
    return out;
  }

  Expr without(const Expr& expr) {
    return replaced(expr, [this](const ExprNode& node) -> std::optional<Expr> {
      if (node.kind != ExprKind::select) return std::nullopt;
      return select(without(node.operands[0]), in_front(node.operands[1]), in_front(node.operands[2]));
    });
  }
  Expr in_front(const Expr& arm) {
    const Expr value = without(arm);
    if (!is_long(value) || !may_be_in_vain(value)) return value;
    return Builder(*now_).let(make_variable("either" + std::to_string(count_++), value.type()), value);
  }

  Body* now_ = nullptr;
  int count_ = 0;
};

}  // namespace

bool branches(const Expr& expr) {
  bool found = false;
  visit_nodes(expr, [&](const ExprNode& node) {
    found |= node.kind == ExprKind::select && (is_long(node.operands[1]) || is_long(node.operands[2]));
  });
  return found;
}

Body without_branches(const Body& body) { return Hoister().of(body); }

}  // namespace quern::ir
