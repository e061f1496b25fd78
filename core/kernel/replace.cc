#include "core/kernel/replace.h"

namespace quern::ir {

namespace {

struct Replacer {
  const Replacement& by;

  Expr value(const Expr& expr) const { return ir::replaced(expr, by); }
  Stmt operator()(Let let) const {
    let.value = value(let.value);
    return let;
  }
  Stmt operator()(Declare declare) const {
    declare.extent = value(declare.extent);
    return declare;
  }
  Stmt operator()(const Assign& assign) const { return Assign{value(assign.place), value(assign.value)}; }
  Stmt operator()(For loop) const {
    for (Expr* expr : {&loop.begin, &loop.end, &loop.step}) *expr = value(*expr);
    loop.body = replaced(loop.body, by);
    return loop;
  }
  Stmt operator()(const If& branch) const { return If{value(branch.condition), replaced(branch.then, by)}; }
  Stmt operator()(Instruction instruction) const {
    for (Expr& operand : instruction.operands) operand = value(operand);
    return instruction;
  }
  Stmt operator()(WarpRole role) const {
    role.body = replaced(role.body, by);
    return role;
  }
  Stmt operator()(const Continue& end) const { return end; }
  Stmt operator()(const Return& end) const { return end; }
  Stmt operator()(const Scope& scope) const { return Scope{replaced(scope.body, by)}; }
};

}  // namespace

Body replaced(const Body& body, const Replacement& by) {
  Body out;
  for (const Stmt& stmt : body) out.push_back(std::visit(Replacer{by}, stmt.is));
  return out;
}

Body renamed(const Body& body, const Symbol& from, const Symbol& to) {
  Replacement by = [&](const ExprNode& node) -> std::optional<Expr> {
    if (node.symbol != from) return std::nullopt;
    if (node.kind == ExprKind::symbol) return Expr(to);
    const Expr index = replaced(node.operands[0], by);
    return node.kind == ExprKind::element ? element(to, index) : address(to, index);
  };
  return replaced(body, by);
}

}  // namespace quern::ir
