#include "core/kernel/divergence.h"

#include <algorithm>

namespace quern::ir {

Varies Divergence::of(const Expr& expr) const {
  const ExprNode& node = expr.node();
  switch (node.kind) {
    case ExprKind::thread_index:
      return Varies::by_thread;
    case ExprKind::element:
      // What memory and registers hold is the thread's, but for one place of a tensor that the kernel does not write.
      if (node.symbol->space != Space::global || node.symbol->into || node.symbol->written) return Varies::by_thread;
      break;
    case ExprKind::symbol: {
      if (node.symbol->space != Space::variable) return Varies::by_thread;
      const auto at = known_.find(node.symbol.get());
      return at == known_.end() ? Varies::by_thread : at->second;
    }
    case ExprKind::call:
      if (node.function == Function::lane_index) return Varies::by_thread;
      if (node.function == Function::all_agree) return Varies::by_block;
      if (node.function == Function::broadcast) return std::min(of(node.operands[0]), Varies::by_warp);
      break;
    case ExprKind::operation:
      if (node.op == Operator::divide && node.operands[1].is_number() && node.operands[1]->number % 32 == 0 &&
          node.operands[0]->kind == ExprKind::thread_index)
        return Varies::by_warp;
      break;
    default:
      break;
  }
  Varies out = Varies::by_block;
  for (const Expr& operand : node.operands) out = std::max(out, of(operand));
  return out;
}

Level level_of(Function function) {
  switch (function) {
    case Function::all_agree:
    case Function::block_reduce:
    case Function::multiply_tile:
      return Level::block;
    case Function::warp_reduce:
    case Function::broadcast:
    case Function::shuffle:
    case Function::shuffle_xor:
      return Level::warp;
    default:
      return Level::thread;
  }
}

}  // namespace quern::ir
