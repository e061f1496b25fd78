#include "tests/support/random_graph.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/graph/builder.h"

namespace quern {

namespace {

class Generator {
 public:
  Generator(uint64_t seed, const RandomGraphOptions& options)
      : options_(options), random_(seed), builder_("random_" + std::to_string(seed)) {}

  Graph run() {
    const int inputs = 1 + below(3), ops = 1 + below(options_.max_ops);
    for (int i = 0; i < inputs; ++i) add_input();
    int made = 0;
    for (int tries = 0; made < ops && tries < 50 * ops; ++tries) made += add_random_op();
    // What nothing reads is an output, so that little is dead; now and then something in the middle too.
    std::vector<bool> read(builder_.graph().nodes.size(), false);
    for (const Node& node : builder_.graph().nodes)
      for (ValueId operand : node.operands) read[operand] = true;
    for (const Known& value : values_)
      if ((!read[value.id] && node(value.id).code != OpCode::input) || below(12) == 0) add_output(value.id);
    if (builder_.graph().outputs.empty()) add_output(values_.back().id);
    return std::move(*builder_.finish());
  }

 private:
  struct Known {
    ValueId id;
    double bound;  // magnitude of its elements, roughly
    bool exact;    // a kernel computes the very same value
  };

  static constexpr double kLargest = 2000;  // far from the largest f16, 65504

  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool coin() { return random_() & 1; }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[below(static_cast<int>(list.size()))];
  }
  const Node& node(ValueId id) const { return builder_.graph().node(id); }
  const TensorType& type(const Known& value) const { return node(value.id).type; }

  DType random_dtype() {
    static const std::vector<DType> dtypes = {DType::f16, DType::f16, DType::f16, DType::bf16,   DType::bf16,
                                              DType::f32, DType::f32, DType::i32, DType::boolean};
    return pick(dtypes);
  }

  int64_t random_extent() { return options_.empty_extents && below(60) == 0 ? 0 : pick(options_.extents); }

  Ints random_shape() {
    Ints shape(1 + below(below(6) == 0 ? 6 : 3));
    for (int64_t& extent : shape) extent = random_extent();
    while (elements(shape) > options_.max_elements)
      *std::max_element(shape.begin(), shape.end()) = 1 + below(4);
    return shape;
  }

  static int64_t elements(const Ints& shape) { return TensorType{DType::f32, shape}.element_count(); }

  void add_output(ValueId id) { check(builder_.add_output(id).ok(), "an output was refused"); }

  void add_input() {
    // Half of the later inputs fit an earlier value, so that binary operators find operands.
    Ints shape = !values_.empty() && coin() ? type(pick(values_)).shape : random_shape();
    Ints strides;
    if (below(5) == 0 && shape.size() > 1) {  // column-major, with a gap
      int64_t stride = 1 + below(2);
      for (int64_t extent : shape) strides.push_back(stride), stride *= std::max<int64_t>(extent, 1);
    }
    auto id = builder_.add_input("x" + std::to_string(values_.size()), random_dtype(), shape, strides,
                                 below(8) == 0);
    values_.push_back({*id, is_float(node(*id).type.dtype) ? 1.0 : 8.0, true});
  }

  // Adds an operator that computes a new known value; nothing when the types do not fit.
  bool append(OpCode code, const std::vector<ValueId>& operands, Attrs attrs, double bound, bool exact) {
    if (!(bound <= kLargest)) return false;
    std::vector<TensorType> types;
    for (ValueId operand : operands) types.push_back(node(operand).type);
    Attrs probe = attrs;
    const auto inferred = infer_type(code, types, probe);
    if (!inferred || inferred->element_count() > options_.max_elements) return false;
    auto id = builder_.add_op(code, operands, std::move(attrs));
    if (id) values_.push_back({*id, bound, exact || (!is_float(inferred->dtype) && all_exact(operands))});
    return id.ok();
  }

  bool all_exact(const std::vector<ValueId>& operands) const {
    for (ValueId operand : operands)
      for (const Known& value : values_)
        if (value.id == operand && !value.exact) return false;
    return true;
  }

  bool add_random_op() {
    const OpInfo& op = all_ops()[below(static_cast<int>(all_ops().size()))];
    switch (op.kind) {
      case OpKind::elementwise:
        return op.max_arity == 1 ? add_unary(op) : op.code == OpCode::where ? add_where() : add_binary(op);
      case OpKind::contraction:
        return add_matmul();
      case OpKind::reduction:
      case OpKind::composite:
        return add_over_axes(op);
      case OpKind::movement:
        return add_movement(op);
      case OpKind::conversion:
        return add_cast();
      case OpKind::generator:
        return add_iota();
      case OpKind::leaf:
        return false;
    }
    return false;
  }

  // A value from 0.5 up, for what is undefined or steep at and below 0.
  Known away_from_zero(const Known& value) {
    append(OpCode::abs, {value.id}, {}, value.bound, false);
    const Known absolute = values_.back();
    append(OpCode::add, {absolute.id, *builder_.add_constant(0.5, false)}, {},
           std::min(absolute.bound + 0.5, kLargest), false);
    return values_.back();
  }

  bool add_unary(const OpInfo& op) {
    Known x = pick(values_);
    double bound = x.bound;
    switch (op.code) {
      case OpCode::exp:
        if (bound > 6) return false;
        bound = std::exp(bound);
        break;
      case OpCode::log:
      case OpCode::sqrt:
      case OpCode::rsqrt:
      case OpCode::reciprocal:
        x = away_from_zero(x);
        bound = std::max(2.0, x.bound);
        break;
      case OpCode::square:
        bound *= bound;
        break;
      case OpCode::sigmoid:
      case OpCode::tanh:
      case OpCode::erf:
        bound = 1;
        break;
      default:
        break;
    }
    const bool exact =
        x.exact && (op.code == OpCode::neg || op.code == OpCode::abs || op.code == OpCode::relu);
    return append(op.code, {x.id}, {}, bound, exact);
  }

  bool add_binary(const OpInfo& op) {
    const Known x = pick(values_);
    Known y = pick(values_);
    if (below(4) == 0) {
      const bool integral = coin();
      const double number = integral ? below(7) - 3 : (below(41) - 20) / 8.0;
      y = {*builder_.add_constant(number, integral), std::fabs(number), true};
    }
    double bound = x.bound + y.bound;
    bool exact = false;
    switch (op.code) {
      case OpCode::mul:
        bound = x.bound * y.bound;
        break;
      case OpCode::div:
        if (node(y.id).code == OpCode::constant) return false;
        y = away_from_zero(y);
        bound = 2 * x.bound;
        break;
      case OpCode::pow: {
        if (x.bound > 4) return false;
        const Known base = away_from_zero(x);
        const double exponent = (below(9) - 4) / 2.0;
        return append(op.code, {base.id, *builder_.add_constant(exponent, false)}, {},
                      std::pow(base.bound, 2), false);
      }
      case OpCode::max:
      case OpCode::min:
        exact = x.exact && y.exact && type(x).dtype == node(y.id).type.dtype;
        break;
      case OpCode::lt:
      case OpCode::le:
      case OpCode::eq:
        if (!x.exact || !y.exact) return false;
        exact = true;
        break;
      default:
        break;
    }
    return append(op.code, {x.id, y.id}, {}, bound, exact);
  }

  bool add_where() {
    std::vector<Known> conditions;
    for (const Known& value : values_)
      if (value.exact) conditions.push_back(value);
    const Known x = pick(values_), y = pick(values_);
    return append(OpCode::where, {pick(conditions).id, x.id, y.id}, {}, std::max(x.bound, y.bound), false);
  }

  bool add_matmul() {
    const Known x = pick(values_);
    const Ints shape = type(x).shape;
    if (shape.empty()) return false;
    // A right side that fits, mostly a new input.
    Known y = pick(values_);
    if (below(3)) {
      Ints right(shape.begin(), coin() ? shape.begin() : shape.end() - std::min<size_t>(2, shape.size()));
      right.push_back(shape.back());
      right.push_back(random_extent());
      if (right.size() > kMaxRank || elements(right) > options_.max_elements) return false;
      const DType dtype = is_float(type(x).dtype) ? type(x).dtype : random_dtype();
      auto id = builder_.add_input("w" + std::to_string(builder_.graph().nodes.size()), dtype, right);
      values_.push_back({*id, is_float(dtype) ? 1.0 : 8.0, true});
      y = values_.back();
    }
    const double inner = static_cast<double>(shape.back());
    return append(OpCode::matmul, {x.id, y.id}, {}, x.bound * y.bound * std::max(1.0, inner), false);
  }

  bool add_over_axes(const OpInfo& op) {
    const Known x = pick(values_);
    const int rank = type(x).rank();
    Attrs attrs;
    double count = 1;
    if (rank > 0 && below(5)) {
      attrs.axis = Ints{below(rank) - (coin() ? rank : 0)};
      if (rank > 1 && below(4) == 0) attrs.axis->push_back((attrs.axis->front() + 1 + rank) % rank);
      for (int64_t axis : *attrs.axis)
        count *= static_cast<double>(type(x).shape[axis < 0 ? axis + rank : axis]);
    } else {
      if (op.code == OpCode::softmax || op.code == OpCode::rms_norm || op.code == OpCode::layer_norm) {
        if (rank == 0) return false;
        count = static_cast<double>(type(x).shape.back());
      } else {
        count = static_cast<double>(type(x).element_count());
      }
    }
    if (op.attrs & attr_bit(AttrId::keepdims)) attrs.keepdims = coin();
    // Not near 0, where a norm of one element iterations rounding noise into 1.
    if (op.attrs & attr_bit(AttrId::eps)) attrs.eps = 0.125;
    const bool ordered = op.laws & kOrdered;
    const double bound = ordered || op.code == OpCode::reduce_mean ? x.bound
                         : op.code == OpCode::reduce_sum           ? x.bound * std::max(1.0, count)
                                                                   : std::sqrt(std::max(1.0, count)) * 3;
    return append(op.code, {x.id}, attrs, bound, x.exact && ordered);
  }

  bool add_movement(const OpInfo& op) {
    const Known x = pick(values_);
    const TensorType from = type(x);
    const int rank = from.rank();
    Attrs attrs;
    std::vector<ValueId> operands = {x.id};
    double bound = x.bound;
    bool exact = x.exact;
    switch (op.code) {
      case OpCode::reshape: {
        Ints shape = from.shape;
        if (rank > 1 && coin()) {
          const int at = below(rank - 1);
          shape[at] *= shape[at + 1];
          shape.erase(shape.begin() + at + 1);
        } else {
          shape.insert(shape.begin() + below(rank + 1), 1);
        }
        attrs.shape = shape;
        break;
      }
      case OpCode::transpose: {
        Ints perm(rank);
        for (int i = 0; i < rank; ++i) perm[i] = i;
        for (int i = rank; i > 1; --i) std::swap(perm[i - 1], perm[below(i)]);
        attrs.perm = perm;
        break;
      }
      case OpCode::slice: {
        attrs.start.emplace();
        attrs.stop.emplace();
        attrs.step.emplace();
        for (int64_t extent : from.shape) {
          const int64_t start = extent > 1 ? below(static_cast<int>(extent) / 2 + 1) : 0;
          attrs.start->push_back(start);
          attrs.stop->push_back(extent - (extent - start > 1 && coin()));
          attrs.step->push_back(1 + (below(3) == 0));
        }
        break;
      }
      case OpCode::concat: {
        if (rank == 0) return false;
        attrs.axis = Ints{below(rank)};
        for (int i = 1 + below(3); i > 0; --i) {
          const Known y = coin() ? x : pick(values_);
          operands.push_back(y.id);
          bound = std::max(bound, y.bound);
          exact &= y.exact && type(y).dtype == from.dtype;
        }
        break;
      }
      default: {
        attrs.shape = from.shape;
        for (int64_t& extent : *attrs.shape)
          if (extent == 1) extent = random_extent();
        if (rank < kMaxRank && coin()) attrs.shape->insert(attrs.shape->begin(), 1 + below(4));
        break;
      }
    }
    return append(op.code, operands, attrs, bound, exact);
  }

  bool add_cast() {
    const Known x = pick(values_);
    Attrs attrs;
    attrs.dtype = random_dtype();
    if (!is_float(*attrs.dtype) && !x.exact) return false;
    return append(OpCode::cast, {x.id}, attrs, x.bound, x.exact);
  }

  bool add_iota() {
    Attrs attrs;
    attrs.shape = random_shape();
    attrs.axis = Ints{below(static_cast<int>(attrs.shape->size()))};
    attrs.dtype = random_dtype();
    return append(OpCode::iota, {}, attrs, 64, true);
  }

  const RandomGraphOptions& options_;
  std::mt19937_64 random_;
  GraphBuilder builder_;
  std::vector<Known> values_;
};

}  // namespace

Graph random_graph(uint64_t seed, const RandomGraphOptions& options) {
  return Generator(seed, options).run();
}

}  // namespace quern
