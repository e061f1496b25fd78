#include "core/codegen/block_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/base/dtype_info.h"
#include "core/graph/decompose.h"
#include "core/lang/meaning.h"
#include "core/lang/value_real.h"
#include "core/mugraph/block_graph.h"
#include "core/mugraph/edit.h"
#include "core/mugraph/narrow.h"

namespace quern {

namespace {

class Lowering {
 public:
  Lowering(const MuGraph& mugraph, const MuKernel& kernel)
      : mugraph_(mugraph), kernel_(kernel), stages_(block_stages(kernel)) {}

  BlockProgram run() {
    for (size_t i = 0; i < kernel_.ops.size(); ++i) {
      const BlockOp& op = kernel_.ops[i];
      BlockOp copy = op;
      for (BlockValue& operand : copy.operands) {
        const bool maximum = is_maximum(operand);
        operand = numbers_[static_cast<size_t>(operand)];
        if (maximum && stages_[i] == Stage::loop)
          operand = frame(operand);
        else if (maximum && !op.has_combine())
          operand = beside_rows(operand);
      }
      if (op.is_compute(OpKind::composite))
        numbers_.push_back(expand(copy));
      else if (op.is_compute(OpCode::matmul))
        numbers_.push_back(product(std::move(copy)));
      else if (op.is_compute() && op_info(op.code()).laws & kOrdered)
        numbers_.push_back(ordered(std::move(copy)));
      else if (op.is_compute(OpCode::where))
        numbers_.push_back(masked(std::move(copy)));
      else if (op.is_compute(OpCode::add) || op.is_compute(OpCode::sub))
        numbers_.push_back(added(std::move(copy)));
      else if (op.has_combine())
        numbers_.push_back(sum(std::move(copy)));
      else
        numbers_.push_back(append(number(std::move(copy))));
      BlockOp& made = out_.ops[static_cast<size_t>(numbers_.back())];
      if (op.rounds_to) made.rounds_to = op.rounds_to;  // else what scaled_behind() knows
      made.softmax_rounds_to = op.softmax_rounds_to;
    }
    keep_wanted();
    MuKernel lowered;
    lowered.ops = out_.ops;
    out_.stages = block_stages(lowered);
    for (BlockValue value : framing_) out_.stages[static_cast<size_t>(value)] = Stage::loop;
    out_.users.resize(out_.ops.size());
    for (size_t i = 0; i < out_.ops.size(); ++i)
      for (BlockValue operand : out_.ops[i].operands)
        out_.users[static_cast<size_t>(operand)].push_back(static_cast<BlockValue>(i));
    return std::move(out_);
  }

 private:
  // Of the muGraph: a maximum over the iterations.
  bool is_maximum(BlockValue value) const {
    const BlockOp& op = kernel_.ops[static_cast<size_t>(value)];
    return op.is_accumulate(Combine::max);
  }

  // What the loop reads of a running maximum: 0 while that is -inf. Then all values so far are -inf, and
  // their exponentials relative to it are e^(-inf - 0) = 0 instead of NaN: tiles that are wholly masked add
  // nothing.
  BlockValue frame(BlockValue maximum) {
    const auto [at, fresh_one] = frames_.try_emplace(maximum);
    if (!fresh_one) return at->second;
    const TensorType type = out_.op(maximum).type;
    if (!is_float(type.dtype)) return at->second = maximum;
    auto number = [&](double value) {
      BlockOp op = BlockOp::constant(value);
      op.type = {type.dtype, {}, true};
      return append(std::move(op));
    };
    const BlockValue lowest = number(-std::numeric_limits<double>::infinity()), zero = number(0);
    const BlockValue nothing = compute(OpCode::eq, {maximum, lowest}, {DType::boolean, type.shape, false});
    const BlockValue out = compute(OpCode::where, {nothing, zero, maximum}, type);
    out_.ops.back().name = out_.op(maximum).name + "_frame";
    framing_.insert(framing_.end(), {nothing, out});
    return frames_[maximum] = out;
  }

  // Only what a store needs.
  void keep_wanted() {
    const std::vector<BlockValue> numbers = keep_stored(out_.ops);
    std::erase_if(framing_, [&](BlockValue value) { return numbers[static_cast<size_t>(value)] < 0; });
    for (BlockValue& value : framing_) value = numbers[static_cast<size_t>(value)];
  }

  BlockValue compute(OpCode code, std::vector<BlockValue> operands, TensorType type, Attrs attrs = {}) {
    BlockOp op(BlockOp::Compute{code, std::move(attrs)}, std::move(operands));
    op.type = std::move(type);
    return append(std::move(op));
  }

  BlockValue reshape(BlockValue value, const Ints& shape) {
    TensorType type = out_.op(value).type;
    if (type.shape == shape) return value;
    type.shape = shape;
    Attrs attrs;
    attrs.shape = shape;
    return compute(OpCode::reshape, {value}, std::move(type), std::move(attrs));
  }

  // Where a value is concatenated along its dimension `dim` from the end.
  bool is_concat(BlockValue value, size_t from_end) const {
    const BlockOp& op = out_.op(value);
    return op.is_compute(OpCode::concat) &&
           (*op.attrs().axis)[0] + static_cast<int64_t>(from_end) == op.type.rank();
  }

  // Concatenated rows times concatenated columns are a sum of products, if both are cut at the same places.
  bool is_sum_of_products(const BlockOp& op) const {
    if (!is_concat(op.operands[0], 1) || !is_concat(op.operands[1], 2)) return false;
    const auto &left = out_.op(op.operands[0]).operands, &right = out_.op(op.operands[1]).operands;
    bool same = left.size() == right.size();
    for (size_t i = 0; same && i < left.size(); ++i)
      same = out_.shape(left[i]).back() == *(out_.shape(right[i]).end() - 2);
    return same;
  }

  // What numbers alone make; nothing if others are in it.
  std::optional<double> number_of(BlockValue value) const {
    const BlockOp& op = out_.op(value);
    if (op.is_compute(OpCode::constant)) return op.number();
    if (op.is_compute(OpKind::movement) && op.operands.size() == 1) return number_of(op.operands[0]);
    if (!op.is_compute(OpKind::elementwise) || !is_float(op.type.dtype)) return std::nullopt;
    std::vector<Real> numbers;
    for (BlockValue operand : op.operands) {
      const std::optional<double> number = number_of(operand);
      if (!number) return std::nullopt;
      numbers.emplace_back(*number);
    }
    return apply_meaning(op.code(), numbers.data()).v;
  }

  // Whether a factor that the search has put in front of a product, where the graph has none, goes behind it.
  // One above 1 may overflow although the product does not; products of f16 have room in f32. And what tensor
  // cores round is right to 11 bits of every term, where the graph rounds the product alone.
  bool is_misplaced(double factor, BlockValue value, bool in_f32) const {
    if (!std::isfinite(factor) || factor == 0) return false;
    int exponent;
    const bool rounds = std::fabs(std::frexp(factor, &exponent)) != 0.5;
    const std::optional<DType> narrow = narrow_dtype(out_.ops, value);
    return (narrow && !in_f32 && rounds) ||
           (std::fabs(factor) > 1 && !(narrow && has_finite_products(*narrow)));
  }

  // A value is `of` times the number `by`.
  struct Multiple {
    BlockValue of;
    double by;
  };
  // Nothing if it is none, or is rounded.
  std::optional<Multiple> multiple(const BlockOp& op) const {
    const bool product = op.is_compute(OpCode::mul), quotient = op.is_compute(OpCode::div);
    if ((!product && !quotient) || op.rounds_to || !is_float(op.type.dtype)) return std::nullopt;
    for (size_t number : {size_t{1}, size_t{0}}) {
      if (number == 0 && quotient) continue;
      const std::optional<double> by = number_of(op.operands[number]);
      const BlockValue of = op.operands[1 - number];
      if (by && out_.op(of).type.shape == op.type.shape && is_float(out_.op(of).type.dtype))
        return Multiple{of, quotient ? 1 / *by : *by};
    }
    return std::nullopt;
  }

  // An operand of a product without its factors that are misplaced, which multiply `factor`.
  BlockValue without_factors(BlockValue value, bool in_f32, double& factor) {
    const BlockOp op = out_.op(value);
    if (!op.is_compute() || op.rounds_to || !is_float(op.type.dtype)) return value;
    if (const auto all = multiple(op); all && is_misplaced(all->by, all->of, in_f32)) {
      factor *= all->by;
      return without_factors(all->of, in_f32, factor);
    }
    const bool product = op.is_compute(OpCode::mul), quotient = op.is_compute(OpCode::div),
               moves = op.is_compute(OpKind::movement) && op.operands.size() == 1;
    BlockOp copy = op;
    for (size_t i = 0; i < (product ? 2 : quotient || moves ? 1 : 0); ++i)
      copy.operands[i] = without_factors(op.operands[i], in_f32, factor);
    return copy.operands == op.operands ? value : append(std::move(copy));
  }
  BlockValue times(BlockValue value, double factor) {
    if (factor == 1) return value;
    BlockOp number = BlockOp::constant(factor);
    number.type = {DType::f32, {}, true};
    const TensorType type = out_.op(value).type;
    const BlockValue scaled = compute(OpCode::mul, {value, append(std::move(number))}, type);
    factors_[scaled] = {value, factor};
    return scaled;
  }

  // A factor above 1 that the search has put in front of a sum, where terms may overflow that cancel, goes behind it.
  BlockValue added(BlockOp op) {
    const auto left = multiple(out_.op(op.operands[0])), right = multiple(out_.op(op.operands[1]));
    if (!left || !right || left->by != right->by || !std::isfinite(left->by) || std::fabs(left->by) <= 1)
      return append(std::move(op));
    op.operands = {left->of, right->of};
    return times(append(std::move(op)), left->by);
  }

  // Sums of products that got a factor behind them are multiplied by it once.
  BlockValue sum(BlockOp op) {
    const auto at = factors_.find(op.operands[0]);
    if (at == factors_.end() || (op.combine() != Combine::sum && op.combine() != Combine::rescaled_sum))
      return append(std::move(op));
    const auto [value, factor] = at->second;
    op.operands[0] = value;
    return times(append(std::move(op)), factor);
  }

  BlockValue product(BlockOp op) {
    double factor = 1;
    if (is_float(op.type.dtype))
      for (BlockValue& operand : op.operands) operand = without_factors(operand, op.in_f32, factor);
    return times(plain_product(std::move(op)), factor);
  }

  BlockValue plain_product(BlockOp op) {
    const TensorType type = op.type;
    const bool vector = out_.shape(op.operands[0]).size() == 1 || out_.shape(op.operands[1]).size() == 1;
    if (out_.shape(op.operands[0]).size() == 1)
      op.operands[0] = reshape(op.operands[0], {1, out_.shape(op.operands[0])[0]});
    if (out_.shape(op.operands[1]).size() == 1)
      op.operands[1] = reshape(op.operands[1], {out_.shape(op.operands[1])[0], 1});
    if (is_sum_of_products(op)) {
      const std::vector<BlockValue> left = out_.op(op.operands[0]).operands,
                                    right = out_.op(op.operands[1]).operands;
      BlockValue sum = -1;
      for (size_t i = 0; i < left.size(); ++i) {
        BlockOp each = op;
        each.operands = {left[i], right[i]};
        const BlockValue part = product(std::move(each));
        sum = sum < 0 ? part : compute(OpCode::add, {sum, part}, type);
      }
      return sum;
    }
    const Ints &a = out_.shape(op.operands[0]), &b = out_.shape(op.operands[1]);
    if (vector) {
      const Ints& batch = a.size() > b.size() ? a : b;  // a vector has none
      Ints shape(batch.begin(), batch.end() - 2);
      shape.push_back(*(a.end() - 2));
      shape.push_back(b.back());
      op.type.shape = std::move(shape);
    }
    return reshape(append(std::move(op)), type.shape);
  }

  BlockOp number(BlockOp op) const {
    if (op.is_compute(OpCode::constant)) op.become(BlockOp::Compute{.number = constant_value(mugraph_, op)});
    return op;
  }

  // Operand `at` of `op`, which selects elements, is scaled; the same with what `op` makes of it unscaled, scaled then.
  BlockValue scaled_behind(BlockOp op, size_t at, size_t values) {
    const BlockOp scaled = out_.op(op.operands[at]);
    const TensorType type = op.type;
    std::vector<BlockValue> operands = scaled.operands;
    op.operands[at] = operands[values];
    operands[values] = append(std::move(op));
    const BlockValue out = compute(scaled.code(), std::move(operands), type);
    out_.ops.back().rounds_to = scaled.rounds_to;
    return out;
  }

  // The maximum of what is scaled by a positive number is the scaled maximum, to the last bit, and so of
  // every ordered reduction: the scaled values need not be kept for it.
  BlockValue ordered(BlockOp op) {
    const auto values = scaled_operand(out_, out_.op(op.operands[0]));
    if (values) return scaled_behind(std::move(op), 0, *values);
    if (const auto row = row_operand(op)) return beside_row(std::move(op), *row);
    return append(std::move(op));
  }
  // Which operand of the larger of two values is one for each row that `op` takes the maximum of; nothing if none is.
  std::optional<size_t> row_operand(const BlockOp& op) const {
    const BlockOp& larger = out_.op(op.operands[0]);
    if (!op.is_compute(OpCode::reduce_max) || !op.attrs().keepdims.value_or(false) ||
        !larger.is_compute(OpCode::max))
      return std::nullopt;
    for (size_t row : {size_t{0}, size_t{1}}) {
      const Ints& shape = out_.shape(larger.operands[row]);
      bool is_one = out_.shape(larger.operands[1 - row]) == larger.type.shape;
      for (int64_t axis : *op.attrs().axis) {
        const int64_t d = axis - larger.type.rank() + static_cast<int64_t>(shape.size());
        is_one = is_one && (d < 0 || shape[static_cast<size_t>(d)] == 1);
      }
      if (is_one) return row;
    }
    return std::nullopt;
  }
  // The maximum of max(x, r) is that of x, or r.
  BlockValue beside_row(BlockOp op, size_t row) {
    const BlockOp larger = out_.op(op.operands[0]);
    const TensorType type = op.type;
    op.operands[0] = larger.operands[1 - row];
    const BlockValue out = compute(OpCode::max, {ordered(std::move(op)), larger.operands[row]}, type);
    rows_[out] = larger.operands[row];
    return out;
  }
  bool is_in_loop(BlockValue value) const {
    const BlockOp& op = out_.op(value);
    if (op.is_load()) return op.loop_dim() >= 0;
    return !op.is_accumulate() && std::any_of(op.operands.begin(), op.operands.end(),
                                              [this](BlockValue operand) { return is_in_loop(operand); });
  }
  // A running maximum of values each of which is at least r: r, too, where a loop has passed over all of them.
  BlockValue beside_rows(BlockValue maximum) {
    const auto row = rows_.find(out_.op(maximum).operands[0]);
    if (row == rows_.end() || is_in_loop(row->second)) return maximum;
    const auto [at, fresh_one] = beside_.try_emplace(maximum);
    if (fresh_one) at->second = compute(OpCode::max, {maximum, row->second}, out_.op(maximum).type);
    return at->second;
  }
  // Nor where an infinity takes the place of some of them, which stays one.
  BlockValue masked(BlockOp op) {
    for (size_t at : {size_t{1}, size_t{2}}) {
      const BlockOp& other = out_.op(op.operands[3 - at]);
      const auto values = scaled_operand(out_, out_.op(op.operands[at]));
      if (values && other.is_compute(OpCode::constant) && std::isinf(other.number()))
        return scaled_behind(std::move(op), at, *values);
    }
    return append(std::move(op));
  }

  BlockValue append(BlockOp op) {
    out_.ops.push_back(std::move(op));
    return static_cast<BlockValue>(out_.ops.size()) - 1;
  }

  // Rows are divided by what is between 1 and the number of their elements: once a row, since a division takes ten
  // instructions, and a hundred where the quotient is small.
  void multiply_by_reciprocal(BlockOp& quotient) {
    const BlockOp& by = out_.op(quotient.operands[1]);
    if (by.is_compute(OpCode::constant) || by.type.element_count() == quotient.type.element_count()) return;
    BlockOp reciprocal(BlockOp::Compute{OpCode::reciprocal, {}, 0});
    reciprocal.type = by.type;
    reciprocal.name = quotient.name;
    reciprocal.operands = {quotient.operands[1]};
    quotient.compute().code = OpCode::mul;
    quotient.operands[1] = append(std::move(reciprocal));
  }

  // The operator as a graph of its own, decomposed.
  BlockValue expand(const BlockOp& op) {
    Graph graph;
    Node node;
    node.code = op.code();
    node.attrs = op.attrs();
    node.type = op.type;
    for (BlockValue operand : op.operands) {
      node.operands.push_back(static_cast<ValueId>(graph.nodes.size()));
      graph.inputs.push_back(node.operands.back());
      Node input;
      input.type = out_.op(operand).type;
      graph.nodes.push_back(std::move(input));
    }
    graph.outputs = {static_cast<ValueId>(graph.nodes.size())};
    graph.nodes.push_back(std::move(node));
    const Graph parts = decompose(graph);
    std::vector<BlockValue> values;
    size_t next = 0;
    for (const Node& part : parts.nodes) {
      if (part.code == OpCode::input) {
        values.push_back(op.operands[next++]);
        continue;
      }
      BlockOp made(BlockOp::Compute{part.code, part.attrs, part.number});
      made.type = part.type;
      made.name = op.name;
      for (ValueId operand : part.operands) made.operands.push_back(values[static_cast<size_t>(operand)]);
      if (made.code() == OpCode::div) multiply_by_reciprocal(made);
      values.push_back(append(std::move(made)));
    }
    return values[static_cast<size_t>(parts.outputs[0])];
  }

  const MuGraph& mugraph_;
  const MuKernel& kernel_;
  const std::vector<Stage> stages_;
  BlockProgram out_;
  std::map<BlockValue, BlockValue> frames_;                      // by maximum
  std::vector<BlockValue> framing_;                              // operators that make them
  std::map<BlockValue, BlockValue> rows_;                        // by value: what beside_row() took out of it
  std::map<BlockValue, BlockValue> beside_;                      // by maximum
  std::map<BlockValue, std::pair<BlockValue, double>> factors_;  // times() that made a value
  std::vector<BlockValue> numbers_;
};

}  // namespace

std::vector<int> view_dims(const BlockProgram& program, BlockValue value) {
  const BlockOp& op = program.op(value);
  if (!op.is_compute() || op.operands.size() != 1) return {};
  const Ints& from = program.shape(op.operands[0]);
  std::vector<int> dims(from.size(), -1);
  if (op.code() == OpCode::transpose) {
    for (size_t i = 0; i < from.size(); ++i)
      dims[static_cast<size_t>((*op.attrs().perm)[i])] = static_cast<int>(i);
    return dims;
  }
  if (op.code() == OpCode::broadcast) {
    for (size_t i = 0; i < from.size(); ++i)
      dims[i] = static_cast<int>(i + op.type.shape.size() - from.size());
    return dims;
  }
  if (op.code() != OpCode::reshape) return {};
  size_t to = 0;  // dimensions of extent 1 come and go, the others stay in order
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 1) continue;
    while (to < op.type.shape.size() && op.type.shape[to] == 1) ++to;
    if (to == op.type.shape.size() || op.type.shape[to] != from[i]) return {};
    dims[i] = static_cast<int>(to++);
  }
  return dims;
}

bool is_view(const BlockProgram& program, BlockValue value) {
  const std::vector<BlockValue>& operands = program.op(value).operands;
  return operands.size() == 1 && (program.shape(operands[0]).empty() || !view_dims(program, value).empty());
}

std::optional<size_t> scaled_operand(const BlockProgram& program, const BlockOp& scaled) {
  const bool quotient = scaled.is_compute(OpCode::div);
  if ((!quotient && !scaled.is_compute(OpCode::mul)) || scaled.type.dtype == DType::i32) return std::nullopt;
  for (size_t number : {size_t{0}, size_t{1}}) {
    if (number == 0 && quotient) continue;
    const BlockOp& by = program.op(scaled.operands[number]);
    const TensorType& values = program.op(scaled.operands[1 - number]).type;
    if (by.is_compute(OpCode::constant) && by.number() > 0 && std::isfinite(by.number()) &&
        values.dtype == scaled.type.dtype && values.shape == scaled.type.shape)
      return 1 - number;
  }
  return std::nullopt;
}

BlockProgram lower_block(const MuGraph& mugraph, const MuKernel& kernel) {
  return Lowering(mugraph, kernel).run();
}

}  // namespace quern
