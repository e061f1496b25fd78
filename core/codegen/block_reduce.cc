// Reductions and accumulators. Sums over lanes and warps stay partial as long as only sums are made of them.
#include <algorithm>

#include "core/codegen/block_emitter.h"

namespace quern {

// What is left when the operand, in `from`, is reduced by every thread for itself.
BlockEmitter::Array BlockEmitter::reduced_array(BlockValue value, const Spread& from) const {
  const BlockOp& op = program_.op(value);
  const size_t rank = program_.shape(op.operands[0]).size();
  std::vector<int> kept(rank);
  std::vector<bool> reduced(rank, false);
  for (int64_t axis : *op.attrs.axis) reduced[static_cast<size_t>(axis)] = true;
  int next = 0;
  for (size_t d = 0; d < rank; ++d) {
    kept[d] = reduced[d] ? -1 : next;
    next += !reduced[d] || *op.attrs.keepdims;
  }
  Array array;
  array.spread = renumbered(from, kept);
  array.dtype = register_type(op.type.dtype);
  array.reduction = op.code;
  for (size_t i = 0; i < from.lanes.size(); ++i)
    if (from.lanes[i].dim >= 0 && reduced[static_cast<size_t>(from.lanes[i].dim)])
      array.partial_lanes |= 1u << i;
  for (size_t i = 0; i < from.warps.size(); ++i)
    if (from.warps[i].dim >= 0 && reduced[static_cast<size_t>(from.warps[i].dim)])
      array.partial_warps |= 1u << i;
  return array;
}

BlockEmitter::Array BlockEmitter::reduce_into(BlockValue value, const Symbol& registers, Stage stage) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  const Spread from = natural(operand);
  Array array = reduced_array(value, from);
  array.registers = registers;
  std::vector<int> axes;
  for (int64_t axis : *op.attrs.axis) axes.push_back(static_cast<int>(axis));
  // The reduced coordinates' bits fall away from the register's number.
  std::vector<BitMove> moves;
  int next = 0;
  for (size_t i = 0; i < from.registers.size(); ++i)
    if (std::find(axes.begin(), axes.end(), from.registers[i].dim) == axes.end())
      moves.push_back({static_cast<int>(i), next++});
  Body body;
  Builder(body).unrolled("r", from.count(), [&](Builder& each, const Expr& r) {
    const Expr number = ir::converted(element(operand, from, r), array.dtype);
    each.when(axes.empty() ? ir::truth(true) : inside(operand, from, r, true, axes), [&](Builder& there) {
      there.combine(op.code, ir::element(registers, move_bits(r, moves)), number);
    });
  });
  text(stage) += std::move(body);
  return array;
}

Body BlockEmitter::started(const Array& array) {
  Body body;
  Builder to(body);
  to.declare(array.registers);
  to.unrolled("r", array.spread.count(), [&](Builder& each, const Expr& r) {
    each.assign(ir::element(array.registers, r), ir::identity(array.reduction, array.dtype));
  });
  return body;
}

void BlockEmitter::reduce(BlockValue value) {
  Array start = reduced_array(value, natural(program_.op(value).operands[0]));
  start.registers = fresh_registers(base_name(value), ir::scalar_of(start.dtype), start.spread.count());
  text(now_) += started(start);
  Array array = reduce_into(value, start.registers, now_);
  array.scope = now_ == Stage::before ? Stage::before : now_;
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

Body BlockEmitter::rescale(BlockValue value, const Array& sums) {
  const BlockValue shift = program_.op(value).operands[1], factor = factors_.at(shift);
  const std::vector<int> dims = operand_dims(program_.shape(value), program_.shape(factor));
  Body body;
  Builder(body).unrolled("r", sums.spread.count(), [&](Builder& each, const Expr& r) {
    const Expr sum = ir::element(sums.registers, r);
    const Value number =
        element(factor, renumbered(sums.spread, dims), renumbered_index(r, sums.spread, dims));
    each.assign(sum, sum * number.as(DType::f32));
  });
  return body;
}

// A running maximum, and the factor by which it shifts what was summed before.
void BlockEmitter::shift(BlockValue value) {
  const BlockValue operand = program_.op(value).operands[0];
  const Spread spread = natural(operand);
  Array array;
  array.spread = spread;
  array.dtype = register_type(program_.op(value).type.dtype);
  array.reduction = OpCode::reduce_max;
  const Scalar type = ir::scalar_of(array.dtype);
  array.registers = fresh_registers(base_name(value), type, spread.count());
  Builder(declared_).add(started(array));
  const auto factor_value = factors_.find(value);
  Body body;
  Builder to(body);
  Array factor = array;
  if (factor_value != factors_.end()) {
    factor.registers = fresh_registers(base_name(value) + "_factor", type, spread.count());
    factor.scope = Stage::loop;
    to.declare(factor.registers);
  }
  to.unrolled("r", spread.count(), [&](Builder& each, const Expr& r) {
    const Expr number = ir::converted(element(operand, spread, r), array.dtype),
               top = ir::element(array.registers, r);
    if (factor_value == factors_.end()) return each.combine(OpCode::reduce_max, top, number);
    const Expr old = each.let(ir::make_variable("old", type), top);
    each.combine(OpCode::reduce_max, top, number);
    each.assign(ir::element(factor.registers, r),
                ir::call(ir::Function::shift_factor, Scalar::f32, {old, top}));
  });
  text(Stage::loop) += std::move(body);
  if (factor_value != factors_.end())
    arrays_[static_cast<size_t>(factor_value->second)].push_back(std::move(factor));
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

// A maximum that the loop itself reads.
bool BlockEmitter::is_shift(BlockValue value) const {
  const auto& users = program_.users[static_cast<size_t>(value)];
  return program_.op(value).combine == Combine::max &&
         (factors_.contains(value) || std::any_of(users.begin(), users.end(), [&](BlockValue user) {
            return program_.stage(user) == Stage::loop;
          }));
}

bool BlockEmitter::keeps_parts(BlockValue value) const {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  if (op.combine == Combine::concat || is_shift(value) || !program_.only_for(operand, value) ||
      program_.stage(operand) != Stage::loop)
    return false;
  if (plans_.contains(operand)) return reduction_of(op.combine) == OpCode::reduce_sum;
  return program_.is_compute(operand, OpKind::reduction) &&
         program_.op(operand).code == reduction_of(op.combine);
}

void BlockEmitter::accumulate(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  if (op.combine == Combine::concat) return concatenate_iterations(value);
  if (is_shift(value)) return shift(value);
  const OpCode code = reduction_of(op.combine);
  const bool parts = keeps_parts(value), product = parts && plans_.contains(operand),
             reduction = parts && !product;
  Array array;
  if (product) {
    array.spread = plans_.at(operand).d;
    array.partial_warps = plans_.at(operand).partial_warps;
  } else if (reduction) {
    array = reduced_array(operand, natural(program_.op(operand).operands[0]));
  } else {
    array.spread = natural(operand);
  }
  array.dtype = register_type(op.type.dtype);
  array.reduction = code;
  const bool pipelined = product && pipelined_.value == operand;
  array.registers =
      pipelined ? pipelined_.sums : fresh_registers(base_name(value), ir::scalar_of(array.dtype), array.spread.count());
  array.scope = Stage::before;
  Builder(declared_).add(started(array));
  if (op.combine == Combine::rescaled_sum && !pipelined) text(Stage::loop) += rescale(value, array);
  if (pipelined) {
    finish_pipelined_iteration(value, array);
  } else if (product) {
    matmul(operand, array.registers, Stage::loop);
    const MatmulPlan& plan = plans_.at(operand);
    if (plan.fma && array.dtype == DType::f32) free_of_vectors(array.registers);
    if (plan.wgmma && !plan.cooperative[static_cast<size_t>(1 - plan.m_side)])
      outstanding_.push_back(array.registers);
  } else if (reduction) {
    reduce_into(operand, array.registers, Stage::loop);
  } else {
    Body body;
    Builder(body).unrolled("r", array.spread.count(), [&](Builder& each, const Expr& r) {
      each.combine(code, ir::element(array.registers, r),
                   ir::converted(element(operand, array.spread, r), array.dtype));
    });
    text(Stage::loop) += std::move(body);
  }
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

}  // namespace quern
