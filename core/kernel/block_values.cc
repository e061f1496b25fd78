#include "core/kernel/block_values.h"

#include <algorithm>
#include <numeric>

namespace quern::ir {

namespace {

// As device/block.cuh has it.
int64_t swizzled(int64_t at, int64_t mask) { return at ^ (at >> 3 & mask); }

}  // namespace

template <class Make, class... Operands>
ThreadNumbers BlockValues::for_each(const Make& make, const Operands&... operands) {
  std::vector<int64_t> out(std::max({operands.numbers_.size()...}));
  for (size_t t = 0; t < out.size(); ++t) out[t] = make(operands[t]...);
  return ThreadNumbers(std::move(out));
}

std::optional<ThreadNumbers> BlockValues::of(const Expr& expr) const {
  const ExprNode& node = expr.node();
  switch (node.kind) {
    case ExprKind::number:
      return ThreadNumbers(node.number);
    case ExprKind::symbol:
      return of_symbol(*node.symbol);
    case ExprKind::thread_index: {
      std::vector<int64_t> numbers(static_cast<size_t>(block_.threads));
      std::iota(numbers.begin(), numbers.end(), int64_t{0});
      return ThreadNumbers(std::move(numbers));
    }
    case ExprKind::block_index:
      return ThreadNumbers(block_.at[static_cast<size_t>(node.number)]);
    case ExprKind::cast: {
      const Numbers value = of(node.operands[0]);
      if (!value || !(is_index(node.type) || node.type == Scalar::boolean)) return {};
      return for_each([&](int64_t a) { return convert_index(a, node.type); }, *value);
    }
    case ExprKind::select: {
      const Numbers condition = of(node.operands[0]), yes = of(node.operands[1]), no = of(node.operands[2]);
      if (!condition || !yes || !no) return {};
      return for_each([](int64_t c, int64_t a, int64_t b) { return c ? a : b; }, *condition, *yes, *no);
    }
    case ExprKind::operation:
      return of_operation(node);
    case ExprKind::call:
      return of_call(node);
    default:
      return {};
  }
}

BlockValues::Numbers BlockValues::of_symbol(const SymbolData& symbol) const {
  if (const auto at = counters_.find(&symbol); at != counters_.end()) return at->second;
  if (const auto at = defined_.find(&symbol); at != defined_.end()) return of(at->second);
  return {};
}

BlockValues::Numbers BlockValues::of_operation(const ExprNode& node) const {
  const Numbers a = of(node.operands[0]);
  if (node.operands.size() == 1) {
    if (!a) return {};
    return for_each([](int64_t value) { return -value; }, *a);
  }
  const Numbers b = of(node.operands[1]);
  // One that is not known does not matter beside what decides the condition for all threads.
  if (node.op == Operator::both || node.op == Operator::either)
    for (const Numbers* side : {&a, &b})
      if (!(a && b) && *side && (*side)->is_one() && ((**side)[0] != 0) == (node.op == Operator::either))
        return *side;
  if (!a || !b) return {};
  return for_each([&](int64_t x, int64_t y) { return compute(node.op, x, y).value_or(0); }, *a, *b);
}

BlockValues::Numbers BlockValues::of_call(const ExprNode& node) const {
  auto operand = [&](size_t i) { return of(node.operands[i]); };
  switch (node.function) {
    case Function::lane_index:
      return for_each([](int64_t thread) { return thread % 32; }, *of(thread_index()));
    case Function::cluster_rank:
      return ThreadNumbers(block_.rank);
    case Function::broadcast:  // of what is the same in all lanes
      return operand(0);
    case Function::min_index:
    case Function::max_index:
    case Function::swizzled_sum: {
      const Numbers a = operand(0), b = operand(1);
      if (!a || !b) return {};
      if (node.function != Function::swizzled_sum)
        return for_each([&](int64_t x, int64_t y) { return *compute(node.function, x, y); }, *a, *b);
      const int64_t mask = node.templates[0].number;
      return for_each(
          [&](int64_t thread, int64_t registers) {
            const int64_t at = swizzled(registers, mask);
            return (thread ^ (at & mask)) + (at & ~mask);
          },
          *a, *b);
    }
    case Function::swizzled: {
      const Numbers at = operand(0);
      if (!at) return {};
      return for_each([&](int64_t x) { return swizzled(x, node.templates[0].number); }, *at);
    }
    default:
      return {};
  }
}

std::optional<ThreadNumbers> BlockValues::bytes_at(const Expr& pointer) const {
  if (pointer->kind == ExprKind::symbol) return begin_of(*pointer->symbol);
  if (pointer->kind == ExprKind::call) return ThreadNumbers(0);  // dynamic_shared
  if (pointer->kind != ExprKind::address && pointer->kind != ExprKind::element) return {};
  const Numbers from = begin_of(*pointer->symbol), index = of(pointer->operands[0]);
  if (!from || !index) return {};
  const int64_t size = bytes_of(pointer->symbol->type);
  return for_each([&](int64_t a, int64_t b) { return a + b * size; }, *from, *index);
}

BlockValues::Numbers BlockValues::begin_of(const SymbolData& pointer) const {
  const auto at = defined_.find(&pointer);
  return at == defined_.end() ? ThreadNumbers(0) : bytes_at(at->second);
}

bool BlockValues::depends(const Expr& expr, const SymbolData& counter) const {
  bool found = false;
  visit_nodes(expr, [&](const ExprNode& node) {
    if (found || !node.symbol) return;
    const auto at = defined_.find(node.symbol.get());
    found = node.symbol.get() == &counter || (at != defined_.end() && depends(at->second, counter));
  });
  return found;
}

}  // namespace quern::ir
