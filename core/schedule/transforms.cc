#include "core/schedule/transforms.h"

#include <algorithm>

namespace quern {

namespace {

bool is_number(const BlockOp& op) {
  return op.is_compute() && op.operands.empty() && op.code() != OpCode::iota;
}

bool is_made_by_rows(const BlockOp& op) {
  return op.is_compute(OpKind::elementwise) || op.is_compute(OpKind::composite) ||
         op.is_compute(OpKind::reduction) || op.is_compute(OpCode::cast);
}

}  // namespace

std::set<BlockValue> made_of_stage(const std::vector<BlockOp>& ops, const std::vector<Stage>& stages,
                                   const std::function<int(BlockValue)>& staged_neighbours,
                                   BlockValue product, BlockValue operand) {
  std::set<BlockValue> made;
  std::set<int64_t> neighbours, reduced;  // dimensions
  std::vector<BlockValue> open = {operand};
  while (!open.empty()) {
    const BlockValue value = open.back();
    open.pop_back();
    const BlockOp& op = ops[static_cast<size_t>(value)];
    if (is_number(op) || !made.insert(value).second) continue;
    const bool once = stages[static_cast<size_t>(value)] == Stage::before;
    const int along = op.is_load() && !once ? staged_neighbours(value) : -1;
    const bool fits = op.is_load() ? once || along >= 0
                      : once       ? op.is_compute(OpKind::elementwise) || op.is_compute(OpCode::cast)
                                   : is_made_by_rows(op);
    if (!fits || stages[static_cast<size_t>(value)] == Stage::after) return {};
    if (along >= 0) neighbours.insert(along);
    if (op.is_compute() && op.attrs().axis) reduced.insert(op.attrs().axis->begin(), op.attrs().axis->end());
    open.insert(open.end(), op.operands.begin(), op.operands.end());
  }
  if (!reduced.empty() && reduced != neighbours) return {};
  for (size_t user = 0; user < ops.size(); ++user) {
    const bool own = made.contains(static_cast<BlockValue>(user)),
               reads = static_cast<BlockValue>(user) == product;
    const auto& operands = ops[user].operands;
    if (reads && std::count(operands.begin(), operands.end(), operand) > 1) return {};
    for (BlockValue used : operands)
      if (made.contains(used) && !own && !(reads && used == operand)) return {};
  }
  return made;
}

}  // namespace quern
