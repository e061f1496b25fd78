#include "core/mugraph/masked_work.h"

#include <cmath>
#include <limits>
#include <map>

#include "core/lang/meaning.h"
#include "core/lang/value_real.h"

namespace quern {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Interpreter {
 public:
  using Masks = std::function<bool(BlockValue)>;

  Interpreter(const std::vector<BlockOp>& ops, const std::vector<Stage>& stages, const Masks& masks)
      : ops_(ops), stages_(stages), masks_(masks) {}

  std::optional<MaskedWork> run() {
    if (stores_in_loop(ops_)) return std::nullopt;
    for (size_t i = 0; i < ops_.size(); ++i)
      if (ops_[i].is_accumulate() && !stays(static_cast<BlockValue>(i))) return std::nullopt;
    if (out_.chains.empty()) return std::nullopt;
    return std::move(out_);
  }

 private:
  const BlockOp& op(BlockValue value) const { return ops_[static_cast<size_t>(value)]; }
  bool in_loop(BlockValue value) const { return stages_[static_cast<size_t>(value)] == Stage::loop; }

  // Whether an accumulator is behind such an iteration what it was in front.
  bool stays(BlockValue accumulator) {
    const BlockOp& own = op(accumulator);
    const auto added = number(own.operands[0]);
    switch (own.combine()) {
      case Combine::sum:
      case Combine::rescaled_sum:
        return added == 0;
      case Combine::max:
        if (!added) return is_nothing_beside_row(own.operands[0]) && lies_far_above(accumulator, -kInfinity);
        return *added == -kInfinity || lies_far_above(accumulator, *added);
      case Combine::min:
        return added == kInfinity;
      default:
        return false;
    }
  }

  // A maximum of -inf and of what is there for each row, which is in the accumulator if any iteration was not passed
  // over, and which what reads that behind the loop takes into account (lower_block).
  bool is_nothing_beside_row(BlockValue value) {
    if (op(value).is_compute(OpCode::reduce_max)) value = op(value).operands[0];
    const BlockOp& own = op(value);
    if (!own.is_compute(OpCode::max)) return false;
    for (size_t i : {size_t{0}, size_t{1}})
      if (!in_loop(own.operands[1 - i]) && number(own.operands[i]) == -kInfinity) return true;
    return false;
  }

  // A number that is written as such, and is no product of extents.
  std::optional<double> written(BlockValue value) const {
    const BlockOp& own = op(value);
    return own.is_compute(OpCode::constant) && own.extents().empty() ? std::optional(own.number())
                                                                     : std::nullopt;
  }

  // What all elements of a value are where all selects take their numbers; nothing if that is not one number.
  std::optional<double> number(BlockValue value) {
    const auto at = known_.find(value);
    return at != known_.end() ? at->second : known_[value] = compute(value);
  }

  std::optional<double> compute(BlockValue value) {
    const BlockOp& own = op(value);
    if (!own.is_compute()) return std::nullopt;
    if (own.code() == OpCode::constant) return written(value);
    if (!in_loop(value)) return std::nullopt;
    if (own.code() == OpCode::where)
      if (const auto selected = select(value)) return selected;
    switch (op_info(own.code()).kind) {
      case OpKind::elementwise:
        return elementwise(own);
      case OpKind::reduction: {
        const auto all = number(own.operands[0]);
        const bool keeps = all && (own.code() != OpCode::reduce_sum || *all == 0);
        return keeps ? all : std::nullopt;
      }
      case OpKind::contraction:
        return product(own);
      case OpKind::movement:
        return own.operands.size() == 1 ? number(own.operands[0]) : std::nullopt;
      case OpKind::conversion: {
        const auto known = number(own.operands[0]);
        const bool floats = is_float(own.type.dtype) && is_float(op(own.operands[0]).type.dtype);
        return known && floats ? std::optional(round_to(own.type.dtype, *known)) : std::nullopt;
      }
      default:
        return std::nullopt;
    }
  }

  // The select, and those whose values it selects from that have the same number.
  std::optional<double> select(BlockValue value) {
    std::vector<BlockValue> chain;
    std::optional<double> masked;
    for (;; value = op(value).operands[1]) {
      const BlockOp& own = op(value);
      if (!own.is_compute(OpCode::where)) break;
      const auto other = written(own.operands[2]);
      if (!other || (masked && *masked != *other) || !masks_(own.operands[0])) break;
      masked = other;
      chain.push_back(value);
    }
    if (!chain.empty()) out_.chains.insert(std::move(chain));
    return masked;
  }

  std::optional<double> elementwise(const BlockOp& own) {
    std::vector<Real> operands;
    for (BlockValue operand : own.operands)
      if (const auto known = number(operand)) operands.emplace_back(*known);
    if (operands.size() == own.operands.size()) {
      if (!is_float(own.type.dtype)) return std::nullopt;
      return apply_meaning<Real>(own.code(), operands.data()).v;
    }
    switch (own.code()) {
      case OpCode::exp:
        return exponential(own.operands[0]);
      case OpCode::sub:
        return number(own.operands[0]) == -kInfinity && lies_far_above(own.operands[1], -kInfinity)
                   ? std::optional(-kInfinity)
                   : std::nullopt;
      case OpCode::mul:
        return product(own);
      case OpCode::where: {
        const auto a = number(own.operands[1]), b = number(own.operands[2]);
        return a && b && *a == *b ? a : std::nullopt;
      }
      default:
        return std::nullopt;
    }
  }

  // Of a number relative to the maximum of a row, or to what else is there for each: 0 if that is so much larger.
  std::optional<double> exponential(BlockValue value) {
    const BlockOp& difference = op(value);
    if (!difference.is_compute(OpCode::sub)) return std::nullopt;
    const auto masked = number(difference.operands[0]);
    return masked && lies_far_above(difference.operands[1], *masked) ? std::optional(0.0) : std::nullopt;
  }

  std::optional<double> product(const BlockOp& own) {
    for (size_t side : {size_t{0}, size_t{1}})
      if (number(own.operands[side]) == 0 && is_finite(own.operands[1 - side])) return 0;
    return std::nullopt;
  }

  // What reads a running maximum reads 0 while that is -inf (lower_block).
  BlockValue without_frame(BlockValue value) const {
    const BlockOp& own = op(value);
    if (!own.is_compute(OpCode::where)) return value;
    const BlockOp& nothing = op(own.operands[0]);
    const BlockValue maximum = own.operands[2];
    const bool frames = nothing.is_compute(OpCode::eq) && nothing.operands[0] == maximum &&
                        written(nothing.operands[1]) == -kInfinity && written(own.operands[1]) == 0;
    return frames ? maximum : value;
  }

  bool lies_far_above(BlockValue value, double masked) {
    const BlockValue row = without_frame(value);
    if (!op(row).is_accumulate(Combine::max) && in_loop(row)) return false;
    out_.far_above.insert({row, masked});
    return true;
  }

  bool is_finite(BlockValue value) {
    if (const auto known = number(value)) return std::isfinite(*known);
    while (op(value).is_compute(OpCode::transpose) || op(value).is_compute(OpCode::reshape))
      value = op(value).operands[0];
    if (op(value).is_compute(OpCode::constant)) return true;  // an extent
    if (in_loop(value) && !op(value).is_load()) return false;
    out_.finite.insert(value);
    return true;
  }

  const std::vector<BlockOp>& ops_;
  const std::vector<Stage>& stages_;
  const Masks& masks_;
  MaskedWork out_;
  std::map<BlockValue, std::optional<double>> known_;
};

}  // namespace

std::optional<MaskedWork> masked_work(const std::vector<BlockOp>& ops, const std::vector<Stage>& stages,
                                      const std::function<bool(BlockValue condition)>& masks) {
  return Interpreter(ops, stages, masks).run();
}

std::optional<std::set<BlockValue>> sums_of_products(const std::vector<BlockOp>& ops, BlockValue value) {
  std::set<BlockValue> out;
  for (size_t i = 0; i < ops.size(); ++i) {
    const BlockOp& op = ops[i];
    if (std::find(op.operands.begin(), op.operands.end(), value) == op.operands.end()) continue;
    const auto user = static_cast<BlockValue>(i);
    if (op.is_accumulate(Combine::sum) || op.is_accumulate(Combine::rescaled_sum)) {
      out.insert(user);
      continue;
    }
    const bool view = op.is_compute(OpCode::transpose) || op.is_compute(OpCode::reshape);
    if (!view && !op.is_compute(OpCode::matmul)) return std::nullopt;
    const auto sums = sums_of_products(ops, user);
    if (!sums) return std::nullopt;
    out.insert(sums->begin(), sums->end());
  }
  return out.empty() ? std::nullopt : std::optional(out);
}

}  // namespace quern
