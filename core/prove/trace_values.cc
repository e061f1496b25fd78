#include "core/prove/trace_values.h"

#include <algorithm>

#include "core/kernel/effects.h"
#include "core/prove/arithmetic.h"

namespace quern::proof {

using namespace ir;

Expr ThreadValues::of(const Expr& expr) const {
  const ExprNode& node = expr.node();
  if (!is_integer(node.type)) return expr;
  switch (node.kind) {
    case ExprKind::number:
      return expr;
    case ExprKind::literal:
      return node.type == Scalar::boolean ? truth(node.value != 0)
                                          : cast(Expr(static_cast<int64_t>(node.value)), node.type);
    case ExprKind::zero:
      return node.type == Scalar::boolean ? truth(false) : cast(Expr(0), node.type);
    case ExprKind::symbol: {
      const auto at = values_.find(node.symbol.get());
      return at == values_.end() ? unknown(expr) : cast(at->second, node.type);
    }
    case ExprKind::thread_index:
      return cast(Expr(places_.thread), node.type);
    case ExprKind::block_index:
      return cast(places_.at[static_cast<size_t>(node.number)], node.type);
    case ExprKind::cast:
      return has_index_operands(node) && is_index(node.type) ? cast(of(node.operands[0]), node.type)
                                                             : unknown(expr);
    case ExprKind::select: {
      const Expr condition = of(node.operands[0]);
      return select(condition, of(node.operands[1]), of(node.operands[2]));
    }
    case ExprKind::operation:
      if (node.operands.size() != 2 || !has_index_operands(node)) return unknown(expr);
      return operation(node.op, of(node.operands[0]), of(node.operands[1]));
    case ExprKind::call:
      return called(expr);
    default:
      return unknown(expr);
  }
}

// What comes from memory or from numbers that are no integers: another value for every thread.
Expr ThreadValues::unknown(const Expr& expr) const {
  Symbol& symbol = unknown_[print(expr)];
  if (!symbol)
    symbol = std::make_shared<const SymbolData>(
        SymbolData{kUnknown + print(expr), Space::variable, expr.type(), 1, false, false, nullptr});
  return Expr(symbol);
}

// Counts blocks of the cluster along x first.
Expr ThreadValues::cluster_rank() const {
  const int64_t wide = cluster_.x, high = cluster_.y, deep = cluster_.z;
  return places_.at[0] % wide + places_.at[1] % high * wide + places_.at[2] % deep * (wide * high);
}

Expr ThreadValues::called(const Expr& expr) const {
  const ExprNode& node = expr.node();
  auto mask = [&] { return Expr(node.templates[0].number); };
  auto swizzled = [&](const Expr& at) { return at ^ (at >> 3 & mask()); };
  switch (node.function) {
    case Function::lane_index:
      return Expr(places_.thread) % 32;
    case Function::cluster_rank:
      return cluster_rank();
    case Function::broadcast:  // of what is the same in all lanes
      return of(node.operands[0]);
    case Function::swizzled:
      return swizzled(of(node.operands[0]));
    case Function::swizzled_sum: {
      const Expr at = swizzled(of(node.operands[1]));
      const int64_t others = ~node.templates[0].number & 0x7fffffff;
      return (of(node.operands[0]) ^ (at & mask())) + (at & others);
    }
    case Function::tile_pitch:
      return Expr(tile_pitch(node.templates[0]));
    case Function::tile_bytes:
      return Expr(tile_bytes(node.templates[0]));
    case Function::min_index:
      return min_of(of(node.operands[0]), of(node.operands[1]));
    case Function::max_index:
      return max_of(of(node.operands[0]), of(node.operands[1]));
    default:
      return unknown(expr);
  }
}

namespace {

bool synchronises(const Expr& expr) {
  bool found = false;
  visit_nodes(expr, [&](const ExprNode& node) {
    found |= node.kind == ExprKind::call &&
             (node.function == Function::block_reduce || node.function == Function::multiply_tile ||
              node.function == Function::all_agree);
  });
  return found;
}
bool synchronises(const Stmt& stmt) {
  if (const Body* inner = ir::body_of(stmt)) return proof::synchronises(*inner);
  if (const auto* assign = stmt.as<Assign>()) return synchronises(assign->value);
  if (const auto* let = stmt.as<Let>()) return synchronises(let->value);
  const auto* instruction = stmt.as<Instruction>();
  return instruction && instr_info(instruction->code).synchronises();
}

}  // namespace

bool Places::decide_by_block(const Expr& expr) const {
  bool by_block = true;
  visit_nodes(expr, [&](const ir::ExprNode& node) {
    by_block &= !node.symbol || std::find(block.begin(), block.end(), node.symbol) != block.end();
  });
  return by_block;
}

bool synchronises(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const Stmt& stmt) { return synchronises(stmt); });
}

}  // namespace quern::proof
