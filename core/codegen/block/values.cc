#include "core/codegen/block/values.h"

#include <cmath>

#include "core/base/dtype_info.h"
#include "core/codegen/block/cluster_reductions.h"
#include "core/codegen/block/conversions.h"
#include "core/codegen/block/staged_tiles.h"
#include "core/lang/meaning.h"

namespace quern {

const RegisterTile* Values::find(BlockValue value, const RegisterLayout& want) const {
  for (const RegisterTile& tile : tiles(value))
    if (tile.whole() && is_defined_now(tile) && serves(tile.layout, want, program_.shape(value)))
      return &tile;
  return nullptr;
}

Value Values::read(const RegisterTile& tile, const RegisterLayout& want, const Expr& index) {
  const Expr at = register_index(index, tile.layout, want);
  const Scalar memory = ir::scalar_of(tile.dtype);
  auto to_float = [](const Expr& element) {
    return ir::call(ir::Function::to_float, Scalar::f32, {element});
  };
  if (tile.words) return to_float(ir::call(ir::Function::half_at, memory, {tile.registers, at}, {memory}));
  const Expr element = ir::element(tile.registers, at);
  return is_narrow(tile.dtype) ? to_float(element) : element;
}

Value Values::element(BlockValue value, const RegisterLayout& layout, const Expr& index) {
  if (program_.is_number(value)) return Value(program_.op(value).number());
  if (const RegisterTile* tile = find(value, layout)) return read(*tile, layout, index);
  if (facts_.is_free(value) &&
      (program_.users[static_cast<size_t>(value)].size() == 1 || program_.op(value).operands.empty()))
    return compute(value, layout, index);
  materialize(value, layout);
  const RegisterTile* tile = find(value, layout);
  if (!tile) {
    if (body_.status.ok()) fail(value, "does not come into the registers where it is needed");
    return Value(0.0);
  }
  return read(*tile, layout, index);
}

// One multiplication and addition in front of the exponential: the scale and the exponential's base become
// one factor, and the shift times it is the same for all elements of a row.
Value Values::shifted_exp(BlockValue value, const ExpArithmetic& exp, const RegisterLayout& layout,
                          const Expr& index) {
  auto operand = [&](BlockValue from) {
    const std::vector<int> dims = operand_dims(program_.shape(value), program_.shape(from));
    const RegisterLayout own = renumbered(layout, dims);
    if (from == exp.shift && facts_.is_free(from) && !program_.is_number(from) && !find(from, own))
      materialize(from, own);  // once for a row
    return ir::converted(element(from, own, renumbered_index(index, layout, dims)), DType::f32);
  };
  const Expr from = operand(exp.x), shift = operand(exp.shift);
  std::vector<Expr> operands = {from, ir::literal(exp.scale, Scalar::f32), shift};
  if (exp.down) operands.push_back(ir::literal(exp.down, Scalar::f32));
  const auto form =
      exp.form == ExpForm::shifted ? ir::Function::exp_shifted : ir::Function::exp_shifted_bounded;
  return ir::call(form, Scalar::f32, std::move(operands));
}

Value Values::compute_operand(BlockValue value, size_t i, DType wanted, const RegisterLayout& layout,
                              const Expr& index) {
  const BlockOp& op = program_.op(value);
  const BlockValue from = op.operands[i];
  const std::vector<int> dims = facts_.asked_dims(value, i);
  const RegisterLayout own = renumbered(layout, dims);
  // What is the same for several elements is computed once; compilers find that too, but it takes them time.
  if (own.count() < layout.count() && program_.is_compute(from, OpKind::elementwise) && !find(from, own))
    materialize(from, own);
  Value operand = element(from, own, renumbered_index(index, layout, dims));
  const DType type = op.code() == OpCode::where && i == 0 ? DType::boolean : wanted;
  if (!is_cast(op) && !operand.is_number()) operand = ir::converted(operand, type);
  if (i == 0 && body_.masked_selects.contains(value))
    operand = ir::either(Expr(body_.unmasked), operand.as(DType::boolean));
  return operand;
}

Value Values::compute(BlockValue value, const RegisterLayout& layout, const Expr& index) {
  const BlockOp& op = program_.op(value);
  ExpArithmetic exp;
  if (op.code() == OpCode::exp) exp = exp_arithmetic(program_, value, facts_.approximate);
  if (exp.x >= 0) return shifted_exp(value, exp, layout, index);
  if (program_.is_compute(value, OpKind::movement)) {
    const std::vector<int> dims = facts_.asked_dims(value, 0);
    return element(op.operands[0], renumbered(layout, dims), renumbered_index(index, layout, dims));
  }
  if (op.code() == OpCode::iota) {
    const size_t axis = static_cast<size_t>((*op.attrs().axis)[0]);
    const Expr at = bounds_.coordinate(layout, static_cast<int>(axis), index);
    return ir::converted(op.has_access() ? bounds_.firsts(value)[axis] + at : at,
                         register_type(op.type.dtype));
  }
  std::vector<TensorType> types;
  std::vector<Value> operands;
  for (BlockValue operand : op.operands) types.push_back(program_.op(operand).type);
  const DType wanted = is_cast(op) ? DType::f32 : compute_dtype(op.code(), types);
  for (size_t i = 0; i < op.operands.size(); ++i)
    operands.push_back(compute_operand(value, i, wanted, layout, index));
  if (is_cast(op)) {
    const DType dtype = *op.attrs().dtype, to = register_type(dtype);
    if (operands[0].is_number()) return operands[0].as(to);
    const Expr number = ir::converted(operands[0], to);
    if (!is_narrow(dtype) || program_.has_numbers_of(op.operands[0], dtype)) return number;
    return ir::call(ir::Function::to_float, Scalar::f32, {ir::rounded(number, dtype)});
  }
  if (facts_.approximate)
    for (Value& operand : operands) operand = operand.approximate();
  if (exp.down && exp.form == ExpForm::fast)
    return ir::call(ir::Function::exp_fast, Scalar::f32,
                    {operands[0].as(DType::f32), ir::literal(exp.down, Scalar::f32)});
  Value result = apply_meaning<Value>(op.code(), operands.data());
  if (exp.down) result = result * Value(std::ldexp(1, -exp.down));
  return ir::converted(result, register_type(op.type.dtype));
}

void Values::load(BlockValue value, const RegisterLayout& layout) {
  if (facts_.is_staged(value)) return staged_.load(value, layout);
  if (!moved_load_cycles(facts_, value, natural(value), layout)) return memory_.load(value, layout);
  if (!find(value, natural(value))) memory_.load(value, natural(value), false);
  conversions_.convert(value, layout);
}

void Values::materialize(BlockValue value, const RegisterLayout& layout) {
  const BlockOp& op = program_.op(value);
  if (op.is_load()) return load(value, layout);
  if (op.is_reduce_cluster()) return cluster_.gather(value, layout);
  if (facts_.is_free(value)) {
    RegisterTile tile;
    tile.layout = layout;
    tile.dtype = register_type(op.type.dtype);
    tile.scope = place_of(value);
    tile.registers = fresh_registers(base_name(value), ir::scalar_of(tile.dtype), layout.count());
    const auto assign = [&](Builder& each, const Expr& r) {
      each.assign(ir::element(tile.registers, r), compute(value, layout, r).as(tile.dtype));
    };
    if (!memory_.make_in_store(value, tile, assign)) {
      Body body;
      Builder to(body);
      to.declare(tile.registers);
      to.unrolled("r", layout.count(), assign);
      text(tile.scope) += std::move(body);
    }
    hold(value, std::move(tile));
    return;
  }
  if (tiles(value).empty()) {
    fail(value, "is used before it is made");
    return;
  }
  finish_lanes(value);
  if (!find(value, layout)) conversions_.convert(value, layout);
}

void Values::finish_lanes(BlockValue value) {
  RegisterTile tile = tiles(value).front();
  for (const RegisterTile& other : tiles(value))
    if (other.partial_lanes == 0 && is_defined_now(other)) return;
  const Symbol from = tile.registers;
  tile.registers = fresh_registers(base_name(value), from->type, tile.layout.count());
  tile.scope = place_of(value);
  Body body;
  Builder to(body);
  to.declare(tile.registers);
  to.unrolled("r", tile.layout.count(), [&](Builder& each, const Expr& r) {
    const Expr own = ir::element(tile.registers, r);
    each.assign(own, ir::element(from, r));
    for (int bit = 0; bit < kLaneBits; ++bit)
      if (tile.partial_lanes >> bit & 1)
        each.combine(tile.reduction, own, ir::call(ir::Function::shuffle_xor, own.type(), {own, 1 << bit}));
  });
  tile.partial_lanes = 0;
  text(tile.scope) += std::move(body);
  hold(value, std::move(tile));
}

}  // namespace quern
