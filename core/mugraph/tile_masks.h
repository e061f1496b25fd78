// What conditions over positions say of a whole tile: that all its elements are true, or that none can be.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "core/mugraph/mugraph.h"

namespace quern {

// Positions of a tile lie between `low` and `high`, both of which occur or not; none is larger in size than
// `most`.
template <class Number>
struct PositionRange {
  Number low, high;
  int64_t most = 0;
};

template <class Truth>
struct TileTruth {
  Truth always, possible;  // every element is true; some element may be
};

// For numbers what core/kernel/expr.h has for expressions.
constexpr bool less(int64_t a, int64_t b) { return a < b; }
constexpr bool less_equal(int64_t a, int64_t b) { return a <= b; }
constexpr bool equal(bool a, bool b) { return a == b; }
constexpr bool both(bool a, bool b) { return a && b; }
constexpr bool either(bool a, bool b) { return a || b; }
constexpr int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t max_of(int64_t a, int64_t b) { return a < b ? b : a; }

constexpr int64_t kMostOfAny = int64_t{1} << 31;  // of an i32, in size

// One integer that all iterations compare with, from memory.
inline bool is_one_integer(const BlockOp& op) {
  return op.is_load() && op.loop_dim() < 0 && op.type.dtype == DType::i32 && op.type.element_count() == 1;
}

// `Number` and `Truth` are int64_t and bool, or both expressions of a kernel. `leaf` gives the range of a
// load of numbered positions (MuTensor::numbered) or of one integer, nothing for other values that it does not know.
template <class Number, class Truth>
class TileMasks {
 public:
  using Range = PositionRange<Number>;
  using Tile = TileTruth<Truth>;
  using Leaf = std::function<std::optional<Range>(BlockValue)>;

  TileMasks(const std::vector<BlockOp>& ops, Leaf leaf) : ops_(ops), leaf_(std::move(leaf)) {}

  // Nothing for conditions that are not decided by positions, or in a way that is not known.
  std::optional<Tile> condition(BlockValue value) const {
    const BlockOp& op = at(value);
    if (!op.is_compute()) return std::nullopt;
    switch (op.code()) {
      case OpCode::constant:
        if (!op.extents().empty() || (op.number() != 0 && op.number() != 1)) return std::nullopt;
        return Tile{truth(op.number() == 1), truth(op.number() == 1)};
      case OpCode::transpose:
      case OpCode::reshape:
      case OpCode::cast:
        return condition(op.operands[0]);
      case OpCode::mul:  // of truths, none of which is negative
      case OpCode::min:
        return joined(op, true);
      case OpCode::add:
      case OpCode::max:
        return joined(op, false);
      case OpCode::where: {
        const auto c = condition(op.operands[0]), a = condition(op.operands[1]),
                   b = condition(op.operands[2]);
        if (!c || !a || !b) return std::nullopt;
        return Tile{both(either(negation(c->possible), a->always), either(c->always, b->always)),
                    either(both(c->possible, a->possible), both(negation(c->always), b->possible))};
      }
      case OpCode::lt:
      case OpCode::le:
      case OpCode::eq:
        return comparison(op);
      default:
        return std::nullopt;
    }
  }

 private:
  static constexpr int64_t kMost = 0x7fffffff, kMostAdded = int64_t{1} << 30;

  static Truth truth(bool value) { return less(Number(0), Number(int64_t{value})); }
  static Truth negation(const Truth& a) { return equal(a, truth(false)); }

  const BlockOp& at(BlockValue value) const { return ops_[static_cast<size_t>(value)]; }

  std::optional<Tile> comparison(const BlockOp& op) const {
    const auto left = range(op.operands[0]), right = range(op.operands[1]);
    if (!left || !right) return std::nullopt;
    const Range &a = left->range, &b = right->range;
    const Truth fits = both(left->fits, right->fits);
    auto told = [&](const Truth& always, const Truth& possible) {
      return Tile{both(fits, always), either(negation(fits), possible)};
    };
    if (op.code() == OpCode::lt) return told(less(a.high, b.low), less(a.low, b.high));
    if (op.code() == OpCode::le) return told(less_equal(a.high, b.low), less_equal(a.low, b.high));
    return told(both(less_equal(a.high, b.low), less_equal(b.high, a.low)),
                both(less_equal(a.low, b.high), less_equal(b.low, a.high)));
  }

  std::optional<Tile> joined(const BlockOp& op, bool all) const {
    const auto a = condition(op.operands[0]), b = condition(op.operands[1]);
    if (!a || !b) return std::nullopt;
    if (all) return Tile{both(a->always, b->always), both(a->possible, b->possible)};
    return Tile{either(a->always, b->always), either(a->possible, b->possible)};
  }

  // Of what may wrap around, the range where it does not: there `fits` holds.
  struct Fitting {
    Range range;
    Truth fits;
  };

  // What only a launch knows is added to where it is not so large that the sum could wrap.
  static Fitting small(const Fitting& a) {
    if (a.range.most < kMostOfAny) return a;
    const Number least(-kMostAdded), most(kMostAdded);
    const Truth fits = both(less_equal(least, a.range.low), less_equal(a.range.high, most));
    auto within = [&](const Number& number) { return max_of(least, min_of(number, most)); };
    return {{within(a.range.low), within(a.range.high), kMostAdded}, both(a.fits, fits)};
  }

  std::optional<Fitting> range(BlockValue value) const {
    const BlockOp& op = at(value);
    if (auto known = leaf_(value)) return Fitting{*known, truth(true)};
    if (!op.is_compute()) return std::nullopt;
    if (op.code() == OpCode::constant) {
      const auto number = static_cast<int64_t>(op.number());
      if (!op.extents().empty() || static_cast<double>(number) != op.number() || number > kMost ||
          number < -kMost)
        return std::nullopt;
      return Fitting{{Number(number), Number(number), number < 0 ? -number : number}, truth(true)};
    }
    if (op.code() == OpCode::transpose || op.code() == OpCode::reshape) return range(op.operands[0]);
    if (op.type.dtype != DType::i32 || (op.code() != OpCode::add && op.code() != OpCode::sub))
      return std::nullopt;
    const auto left = range(op.operands[0]), right = range(op.operands[1]);
    if (!left || !right) return std::nullopt;
    const Fitting a = small(*left), b = small(*right);
    const int64_t most = a.range.most + b.range.most;
    if (most > kMost) return std::nullopt;
    const bool adds = op.code() == OpCode::add;
    const Number low = adds ? a.range.low + b.range.low : a.range.low - b.range.high,
                 high = adds ? a.range.high + b.range.high : a.range.high - b.range.low;
    return Fitting{{low, high, most}, both(a.fits, b.fits)};
  }

  const std::vector<BlockOp>& ops_;
  const Leaf leaf_;
};

// The share of a kernel's tiles, of all iterations of its blocks, in which not all is masked by positions, if
// others change nothing (masked_work): about, of large grids. Blocks of a cluster wait for each other, so that the
// busiest one counts for all.
struct UnmaskedShare {
  double mean = 1, most = 1;  // of all blocks, and of the one that has the most
  double partly = 0;          // of all blocks: in which some is masked and some is not
};
UnmaskedShare unmasked_share(const MuGraph& mugraph, const MuKernel& kernel);

// The selects that mask, and what nothing but their conditions is made of. Iterations in which nothing is masked can do without.
std::set<BlockValue> masking_values(const MuGraph& mugraph, const MuKernel& kernel);

// What the loop of such a kernel loads and multiplies by zeros where it is masked, which must be finite then; and the
// tensors in memory that these load. None if iterations change something.
std::vector<BlockValue> loads_that_must_be_finite(const MuGraph& mugraph, const MuKernel& kernel);
std::vector<int32_t> tensors_to_look_at(const MuGraph& mugraph, const MuKernel& kernel);

// Whether the sums of all blocks together show that these loads are finite: whatever is loaded is multiplied and summed by
// some block, if only by zeros, in each of the iterations that the masks leave it.
bool sums_show_finite(const MuGraph& mugraph, const MuKernel& kernel);

// The axis of the grid along which that differs from block to block: those at its end have more to do, or
// less.
struct UnevenAxis {
  int axis = -1;  // none
  bool grows = false;
};
UnevenAxis uneven_axis(const MuGraph& mugraph, const MuKernel& kernel);

}  // namespace quern
