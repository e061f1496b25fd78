#include "core/kernel/ranges.h"

#include <algorithm>
#include <bit>

#include "core/base/status.h"

namespace quern::ir {

namespace {

constexpr Interval kAnything = {-kRangeLimit, kRangeLimit};

int64_t clamped(__int128 value) {
  return static_cast<int64_t>(std::clamp<__int128>(value, -kRangeLimit, kRangeLimit));
}

Interval of_type(Scalar type) {
  switch (type) {
    case Scalar::boolean:
      return {0, 1};
    case Scalar::i32:
      return {INT32_MIN, INT32_MAX};
    case Scalar::u32:
      return {0, UINT32_MAX};
    case Scalar::u64:
      return {0, kRangeLimit};
    default:
      return kAnything;
  }
}

// All ones up to the highest bit.
int64_t ones(int64_t value) {
  return value <= 0 ? 0
                    : static_cast<int64_t>((uint64_t{1} << std::bit_width(static_cast<uint64_t>(value))) - 1);
}

Interval multiplied(Interval a, Interval b) {
  const __int128 corners[] = {static_cast<__int128>(a.low) * b.low, static_cast<__int128>(a.low) * b.high,
                              static_cast<__int128>(a.high) * b.low, static_cast<__int128>(a.high) * b.high};
  return {clamped(*std::min_element(corners, corners + 4)), clamped(*std::max_element(corners, corners + 4))};
}

Interval compared(Operator op, Interval a, Interval b) {
  auto truth = [](bool always, bool never) { return Interval{always ? 1 : 0, never ? 0 : 1}; };
  switch (op) {
    case Operator::less:
      return truth(a.high < b.low, a.low >= b.high);
    case Operator::less_equal:
      return truth(a.high <= b.low, a.low > b.high);
    default:
      break;
  }
  const bool same = a.is_one() && a == b, apart = a.high < b.low || b.high < a.low;
  return op == Operator::equal ? truth(same, apart) : truth(apart, same);
}

// A template argument of a tile type that is a number.
int64_t number_in(const TemplateArg& tile, size_t at) { return tile.of[at].number; }

}  // namespace

Interval Ranges::of(const Expr& expr) const {
  const ExprNode& node = expr.node();
  switch (node.kind) {
    case ExprKind::number:
      return {node.number, node.number};
    case ExprKind::symbol: {
      const auto at = known_.find(node.symbol.get());
      return at != known_.end() ? at->second : of_type(node.type);
    }
    case ExprKind::thread_index:
      return launch_.threads > 0 ? Interval{0, launch_.threads - 1} : Interval{0, 1023};
    case ExprKind::block_index: {
      const int64_t blocks = launch_.grid[static_cast<size_t>(node.number)];
      return blocks > 0 ? Interval{0, blocks - 1} : Interval{0, INT32_MAX};
    }
    case ExprKind::cast: {
      if (!is_index(node.operands[0].type()) || !is_index(node.type)) return of_type(node.type);
      const Interval inner = of(node.operands[0]), fits = of_type(node.type);
      return inner.low >= fits.low && inner.high <= fits.high ? inner : fits;
    }
    case ExprKind::select: {
      const Interval condition = of(node.operands[0]);
      if (condition.is_one()) return of(node.operands[condition.low ? 1 : 2]);
      const Interval a = of(node.operands[1]), b = of(node.operands[2]);
      return {std::min(a.low, b.low), std::max(a.high, b.high)};
    }
    case ExprKind::operation:
      return is_index(node.type) || node.type == Scalar::boolean ? of_operation(node) : of_type(node.type);
    case ExprKind::call:
      return of_call(node);
    default:
      return of_type(node.type);
  }
}

Interval Ranges::of_operation(const ExprNode& node) const {
  const Interval a = of(node.operands[0]);
  if (node.operands.size() == 1) return {-a.high, -a.low};
  const Interval b = of(node.operands[1]), any = of_type(node.type);
  const bool natural = a.low >= 0 && b.low >= 0;
  switch (node.op) {
    case Operator::add:
      return {clamped(static_cast<__int128>(a.low) + b.low), clamped(static_cast<__int128>(a.high) + b.high)};
    case Operator::subtract:
      return {clamped(static_cast<__int128>(a.low) - b.high), clamped(static_cast<__int128>(a.high) - b.low)};
    case Operator::multiply:
      return multiplied(a, b);
    case Operator::divide:
      return b.low > 0
                 ? Interval{a.low / (a.low < 0 ? b.low : b.high), a.high / (a.high < 0 ? b.high : b.low)}
                 : any;
    case Operator::modulo:
      if (!natural || b.low == 0) return any;
      return b.is_one() && a.low / b.low == a.high / b.low ? Interval{a.low % b.low, a.high % b.low}
                                                           : Interval{0, std::min(a.high, b.high - 1)};
    case Operator::shift_left:
      return b.is_one() && b.low < 62 ? multiplied(a, {int64_t{1} << b.low, int64_t{1} << b.low}) : any;
    case Operator::shift_right:
      return b.is_one() && b.low < 63 ? Interval{a.low >> b.low, a.high >> b.low} : any;
    case Operator::bit_and:
      return natural      ? Interval{0, std::min({a.high, b.high, ones(a.high) & ones(b.high)})}
             : b.low >= 0 ? Interval{0, b.high}
                          : any;
    case Operator::bit_xor:
    case Operator::bit_or:
      return natural ? Interval{0, ones(a.high | b.high)} : any;
    case Operator::both:
      return {a.low && b.low, a.high && b.high};
    case Operator::either:
      return {a.low || b.low, a.high || b.high};
    case Operator::negate:
      return any;
    default:
      return compared(node.op, a, b);
  }
}

Interval Ranges::of_call(const ExprNode& node) const {
  switch (node.function) {
    case Function::lane_index:
      return {0, 31};
    case Function::cluster_rank:
      return {0, std::max<int64_t>(1, launch_.cluster) - 1};
    case Function::broadcast:
      return of(node.operands[0]);
    case Function::min_index:
    case Function::max_index: {
      const Interval a = of(node.operands[0]), b = of(node.operands[1]);
      return {*compute(node.function, a.low, b.low), *compute(node.function, a.high, b.high)};
    }
    case Function::swizzled: {
      const Interval at = of(node.operands[0]);
      return at.low >= 0 ? Interval{0, ones(at.high)} : of_type(node.type);
    }
    case Function::swizzled_sum: {
      const Interval a = of(node.operands[0]), b = of(node.operands[1]);
      if (a.low < 0 || b.low < 0) return of_type(node.type);
      return {0, ones(a.high | (ones(b.high) & node.templates[0].number)) + b.high};
    }
    case Function::tile_pitch:
      return {tile_pitch(node.templates[0]), tile_pitch(node.templates[0])};
    case Function::tile_bytes:
      return {tile_bytes(node.templates[0]), tile_bytes(node.templates[0])};
    default:
      return of_type(node.type);
  }
}

void Ranges::bound(const Expr& value, Interval range) {
  if (value->kind == ExprKind::cast && is_index(value->operands[0].type()))
    return bound(value->operands[0], range);
  // A number that is added; signed sums do not wrap.
  const bool sum = value->kind == ExprKind::operation && value->op == Operator::add &&
                   (value->type == Scalar::i32 || value->type == Scalar::i64);
  for (size_t i = 0; sum && i < 2; ++i)
    if (value->operands[i].is_number()) {
      const int64_t by = value->operands[i]->number;
      return bound(value->operands[1 - i], {clamped(static_cast<__int128>(range.low) - by),
                                            clamped(static_cast<__int128>(range.high) - by)});
    }
  if (value->kind != ExprKind::symbol || value->symbol->space != Space::variable) return;
  const Interval now = of(value);
  set(*value->symbol, {std::max(now.low, range.low), std::min(now.high, range.high)});
}

void Ranges::assume(const Expr& condition, bool holds) {
  if (condition->kind != ExprKind::operation || condition->operands.size() != 2) return;
  const Expr &a = condition->operands[0], &b = condition->operands[1];
  switch (condition->op) {
    case Operator::both:
    case Operator::either:
      if ((condition->op == Operator::both) != holds) return;
      assume(a, holds);
      return assume(b, holds);
    case Operator::less:
    case Operator::less_equal: {
      const int64_t strict = (condition->op == Operator::less) == holds ? 1 : 0;
      const Expr &small = holds ? a : b, &large = holds ? b : a;
      const Interval low = of(small), high = of(large);
      bound(small, {-kRangeLimit, high.high - strict});
      return bound(large, {low.low + strict, kRangeLimit});
    }
    case Operator::equal:
      if (!holds) return;
      bound(a, of(b));
      return bound(b, of(a));
    default:
      return;
  }
}

size_t tile_stages_at(const TemplateArg& tile) {
  return tile.name == "MmaTile" ? 6 : tile.name == "FmaTile" ? 7 : 0;
}

int64_t tile_pitch(const TemplateArg& tile) { return number_in(tile, 2) + (tile.name == "MmaTile" ? 8 : 4); }

int64_t tile_bytes(const TemplateArg& tile) {
  const int64_t rows = number_in(tile, 1), columns = number_in(tile, 2), depth = number_in(tile, 3);
  const int64_t sums = rows * tile_pitch(tile) * 4;
  const size_t stages = tile_stages_at(tile);
  if (stages == 0) return std::max(depth * (rows + 1 + columns + 4) * bytes_of(tile.of[0].type), sums);
  auto elements = [&](int64_t down, int64_t across, bool columns_inner) {
    return columns_inner ? down * (across + 8) : across * (down + 8);
  };
  const int64_t operands = elements(rows, depth, number_in(tile, stages + 2)) +
                           elements(depth, columns, number_in(tile, stages + 4));
  return std::max(number_in(tile, stages) * operands * bytes_of(tile.of[0].type), sums);
}

}  // namespace quern::ir
