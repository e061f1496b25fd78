// Values of a block graph where they are asked for: elementwise chains as expressions, coordinates and edges.
#include <algorithm>
#include <cmath>

#include "core/base/dtype_info.h"
#include "core/codegen/block_emitter.h"
#include "core/lang/meaning.h"

namespace quern {

namespace {

// For each dimension of the result of a view its number in the operand; `dims` is the other way round.
std::vector<int> inverse_dims(const std::vector<int>& dims, size_t rank) {
  std::vector<int> back(rank, -1);
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] >= 0) back[static_cast<size_t>(dims[i])] = static_cast<int>(i);
  return back;
}

}  // namespace

bool BlockEmitter::is_free(BlockValue value) const {
  const BlockOp& op = program_.op(value);
  if (op.kind != BlockOp::Kind::compute) return false;
  const OpKind kind = op_info(op.code).kind;
  return kind == OpKind::elementwise || is_cast(op) || op.code == OpCode::iota ||
         (kind == OpKind::movement && is_view(program_, value));
}

const BlockEmitter::Array* BlockEmitter::find(BlockValue value, const Spread& want) const {
  for (const Array& array : arrays_[static_cast<size_t>(value)])
    if (array.whole() && (array.scope == Stage::before || array.scope == now_) &&
        serves(array.spread, want, program_.shape(value)))
      return &array;
  return nullptr;
}

Value BlockEmitter::read(const Array& array, const Spread& want, const Expr& index) const {
  const Expr at = register_index(index, array.spread, want);
  const Scalar memory = ir::scalar_of(array.dtype);
  auto to_float = [](const Expr& element) {
    return ir::call(ir::Function::to_float, Scalar::f32, {element});
  };
  if (array.words) return to_float(ir::call(ir::Function::half_at, memory, {array.registers, at}, {memory}));
  const Expr element = ir::element(array.registers, at);
  return is_narrow(array.dtype) ? to_float(element) : element;
}

Value BlockEmitter::element(BlockValue value, const Spread& spread, const Expr& index) {
  if (program_.is_number(value)) return Value(program_.op(value).number);
  if (const Array* array = find(value, spread)) return read(*array, spread, index);
  if (is_free(value) &&
      (program_.users[static_cast<size_t>(value)].size() == 1 || program_.op(value).operands.empty()))
    return compute(value, spread, index);
  materialize(value, spread);
  const Array* array = find(value, spread);
  if (!array) {
    if (status_.ok()) fail(value, "does not come into the registers where it is needed");
    return Value(0.0);
  }
  return read(*array, spread, index);
}

std::vector<int> BlockEmitter::asked_dims(BlockValue value, size_t operand) const {
  const Ints &shape = program_.shape(value), &from = program_.shape(program_.op(value).operands[operand]);
  if (!program_.is_compute(value, OpKind::movement)) return operand_dims(shape, from);
  std::vector<int> back = inverse_dims(view_dims(program_, value), shape.size());
  for (size_t d = 0; d < back.size(); ++d)  // repeated by a broadcast
    if (back[d] >= 0 && from[static_cast<size_t>(back[d])] == 1 && shape[d] != 1) back[d] = -1;
  return back;
}

// One multiplication and addition in front of the exponential: the scale and the exponential's base become one
// factor, and the shift times it is the same for all elements of a row.
Value BlockEmitter::shifted_exp(BlockValue value, const ExpArithmetic& exp, const Spread& spread,
                                const Expr& index) {
  auto operand = [&](BlockValue from) {
    const std::vector<int> dims = operand_dims(program_.shape(value), program_.shape(from));
    const Spread own = renumbered(spread, dims);
    if (from == exp.shift && is_free(from) && !program_.is_number(from) && !find(from, own))
      materialize(from, own);  // once for a row
    return ir::converted(element(from, own, renumbered_index(index, spread, dims)), DType::f32);
  };
  const Expr from = operand(exp.x), shift = operand(exp.shift);
  std::vector<Expr> operands = {from, ir::literal(exp.scale, Scalar::f32), shift};
  if (exp.down) operands.push_back(ir::literal(exp.down, Scalar::f32));
  const auto form =
      exp.form == ExpForm::shifted ? ir::Function::exp_shifted : ir::Function::exp_shifted_bounded;
  return ir::call(form, Scalar::f32, std::move(operands));
}

Value BlockEmitter::compute(BlockValue value, const Spread& spread, const Expr& index) {
  const BlockOp& op = program_.op(value);
  ExpArithmetic exp;
  if (op.code == OpCode::exp) exp = exp_arithmetic(program_, value, approximate_);
  if (exp.x >= 0) return shifted_exp(value, exp, spread, index);
  if (program_.is_compute(value, OpKind::movement)) {
    const std::vector<int> dims = asked_dims(value, 0);
    return element(op.operands[0], renumbered(spread, dims), renumbered_index(index, spread, dims));
  }
  if (op.code == OpCode::iota) {
    const size_t axis = static_cast<size_t>((*op.attrs.axis)[0]);
    const Expr at = coordinate(spread, static_cast<int>(axis), index);
    return ir::converted(op.tensor < 0 ? at : firsts_[static_cast<size_t>(value)][axis] + at,
                         register_type(op.type.dtype));
  }
  std::vector<TensorType> types;
  std::vector<Value> operands;
  for (BlockValue operand : op.operands) types.push_back(program_.op(operand).type);
  const DType wanted = is_cast(op) ? DType::f32 : compute_dtype(op.code, types);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const std::vector<int> dims = asked_dims(value, i);
    const Spread own = renumbered(spread, dims);
    // What is the same for several elements is computed once; compilers find that too, but it takes them
    // time.
    if (own.count() < spread.count() && program_.is_compute(op.operands[i], OpKind::elementwise) &&
        !find(op.operands[i], own))
      materialize(op.operands[i], own);
    Value operand = element(op.operands[i], own, renumbered_index(index, spread, dims));
    const DType type = op.code == OpCode::where && i == 0 ? DType::boolean : wanted;
    if (!is_cast(op) && !operand.is_number()) operand = ir::converted(operand, type);
    if (i == 0 && masks_ && masks_->scores.selects.contains(value))
      operand = ir::either(Expr(unmasked_), operand.as(DType::boolean));
    operands.push_back(std::move(operand));
  }
  if (is_cast(op)) {
    const DType dtype = *op.attrs.dtype, to = register_type(dtype);
    if (operands[0].is_number()) return operands[0].as(to);
    const Expr number = ir::converted(operands[0], to);
    if (!is_narrow(dtype)) return number;
    return ir::call(ir::Function::to_float, Scalar::f32, {ir::rounded(number, dtype)});
  }
  if (approximate_)
    for (Value& operand : operands) operand = operand.approximate();
  if (exp.down && exp.form == ExpForm::fast)
    return ir::call(ir::Function::exp_fast, Scalar::f32,
                    {operands[0].as(DType::f32), ir::literal(exp.down, Scalar::f32)});
  Value result = apply_meaning<Value>(op.code, operands.data());
  if (exp.down) result = result * Value(std::ldexp(1, -exp.down));
  return ir::converted(result, register_type(op.type.dtype));
}

void BlockEmitter::materialize(BlockValue value, const Spread& spread) {
  const BlockOp& op = program_.op(value);
  if (op.kind == BlockOp::Kind::load) return load(value, spread);
  if (op.kind == BlockOp::Kind::reduce_cluster) return gather(value, spread);
  if (is_free(value)) {
    const Stage place = place_of(value);
    Body body;
    Builder to(body);
    Array array;
    array.spread = spread;
    array.dtype = register_type(op.type.dtype);
    array.scope = place;
    array.registers = fresh_registers(base_name(value), ir::scalar_of(array.dtype), spread.count());
    to.declare(array.registers);
    to.unrolled("r", spread.count(), [&](Builder& each, const Expr& r) {
      each.assign(ir::element(array.registers, r), compute(value, spread, r).as(array.dtype));
    });
    text(place) += std::move(body);
    arrays_[static_cast<size_t>(value)].push_back(std::move(array));
    return;
  }
  if (arrays_[static_cast<size_t>(value)].empty()) {
    fail(value, "is used before it is made");
    return;
  }
  finish_lanes(value);
  if (!find(value, spread)) convert(value, spread);
}

BlockValue BlockEmitter::root_load(BlockValue value) const {
  const BlockOp& op = program_.op(value);
  if (op.kind == BlockOp::Kind::load) return value;
  if (!program_.is_compute(value, OpKind::elementwise) && !is_cast(op)) return -1;
  for (BlockValue operand : op.operands)
    if (program_.shape(operand) == op.type.shape)
      if (const BlockValue load = root_load(operand); load >= 0) return load;
  return -1;
}

Spread BlockEmitter::blocked(BlockValue value, DType dtype, int inner) const {
  const Ints& shape = program_.shape(value);
  int all = -(kLaneBits + warp_bits_);
  for (int64_t extent : shape) all += bits_for(extent);
  if (inner < 0) inner = static_cast<int>(shape.size()) - 1;
  int vector = 0;
  while (inner >= 0 && (dtype_size(dtype) << (vector + 1)) <= 16 && vector + 1 <= all &&
         shape[static_cast<size_t>(inner)] % (int64_t{2} << vector) == 0)
    ++vector;
  return blocked_spread(shape, std::max(inner, 0), vector, warp_bits_, 0, row_warp_bits_);
}

// The same, but every block of the cluster has a part, if need be in smaller vectors, so that no thread
// idles.
Spread BlockEmitter::shared_out(BlockValue value, DType dtype, int inner) const {
  const Spread alone = blocked(value, dtype, inner);
  if (rank_bits() == 0) return alone;
  const Ints& shape = program_.shape(value);
  if (inner < 0) inner = static_cast<int>(shape.size()) - 1;
  int all = -(kLaneBits + warp_bits_ + rank_bits()), vector = 0;
  for (int64_t extent : shape) all += bits_for(extent);
  while (vector < std::max(all, 2) && static_cast<size_t>(vector) < alone.registers.size() &&
         alone.registers[static_cast<size_t>(vector)] == CoordBit{inner, vector})
    ++vector;
  return blocked_spread(shape, std::max(inner, 0), vector, warp_bits_, rank_bits());
}

Expr BlockEmitter::define(const std::string& prefix, const Expr& expression) {
  if (expression.is_number()) return expression;
  const auto [at, fresh_one] = defined_.try_emplace(print(expression));
  if (fresh_one) {
    at->second = ir::make_variable(fresh(prefix), expression.type());
    Builder(prologue_).let(at->second, expression);
  }
  return Expr(at->second);
}

Expr BlockEmitter::coordinate(const Spread& spread, int dim, const Expr& index) {
  return define("i", thread_part(spread, dim)) + register_part(index, spread, dim);
}

namespace {

Expr wide_enough(const Spread& spread, int dim, int64_t stride) {
  const bool wide = stride * (int64_t{1} << spread.bits(dim)) > 0x7fffffff;
  return wide ? ir::cast(Expr(stride), Scalar::i64) : Expr(stride);
}

}  // namespace

Expr BlockEmitter::offset(const Spread& spread, const Ints& strides, const Expr& index) {
  Expr out = 0;
  for (int d = 0; d < static_cast<int>(strides.size()); ++d)
    out = out + coordinate(spread, d, index) * wide_enough(spread, d, strides[static_cast<size_t>(d)]);
  return out;
}

// From a thread's register 0 on.
Expr BlockEmitter::register_offset(const Spread& spread, const Ints& strides, const Expr& index) const {
  Expr out = 0;
  for (int d = 0; d < static_cast<int>(strides.size()); ++d)
    out = out + register_part(index, spread, d) * wide_enough(spread, d, strides[static_cast<size_t>(d)]);
  return out;
}

Expr BlockEmitter::inside(BlockValue value, const Spread& spread, const Expr& index, bool edges,
                          const std::vector<int>& dims) {
  Expr out = ir::truth(true);
  const auto& extents = dims_[static_cast<size_t>(value)];
  for (int d = 0; d < static_cast<int>(extents.size()); ++d) {
    if (!dims.empty() && std::find(dims.begin(), dims.end(), d) == dims.end()) continue;
    const TileDim& dim = extents[static_cast<size_t>(d)];
    const bool ragged = edges && dim.left;
    if (!ragged && (int64_t{1} << spread.bits(d)) <= dim.tile) continue;
    const Expr at = coordinate(spread, d, index);
    Expr own = less(at, ragged ? Expr(dim.left) : Expr(dim.tile));
    // Iterations that are masked nowhere have whole tiles.
    if (ragged && masks_ && loop_lefts_.contains(dim.left))
      own = both(either(Expr(unmasked_), own),
                 (int64_t{1} << spread.bits(d)) <= dim.tile ? ir::truth(true) : less(at, dim.tile));
    out = both(out, own);
  }
  return out;
}

}  // namespace quern
