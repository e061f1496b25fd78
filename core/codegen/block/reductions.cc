#include "core/codegen/block/reductions.h"

#include <algorithm>

namespace quern {

RegisterTile reduced_tile(const BlockProgram& program, BlockValue reduction, const RegisterLayout& from) {
  const BlockOp& op = program.op(reduction);
  const size_t rank = program.shape(op.operands[0]).size();
  std::vector<int> kept(rank);
  std::vector<bool> reduced(rank, false);
  for (int64_t axis : *op.attrs().axis) reduced[static_cast<size_t>(axis)] = true;
  int next = 0;
  for (size_t d = 0; d < rank; ++d) {
    kept[d] = reduced[d] ? -1 : next;
    next += !reduced[d] || *op.attrs().keepdims;
  }
  RegisterTile tile;
  tile.layout = renumbered(from, kept);
  tile.dtype = register_type(op.type.dtype);
  tile.reduction = op.code();
  for (size_t i = 0; i < from.lanes.size(); ++i)
    if (from.lanes[i].dim >= 0 && reduced[static_cast<size_t>(from.lanes[i].dim)])
      tile.partial_lanes |= 1u << i;
  for (size_t i = 0; i < from.warps.size(); ++i)
    if (from.warps[i].dim >= 0 && reduced[static_cast<size_t>(from.warps[i].dim)])
      tile.partial_warps |= 1u << i;
  return tile;
}

void Reductions::reduce_into(BlockValue reduction, const Symbol& registers, Stage stage) {
  const BlockOp& op = program_.op(reduction);
  const BlockValue operand = op.operands[0];
  const RegisterLayout from = values_.natural(operand);
  const DType dtype = register_type(op.type.dtype);
  std::vector<int> axes;
  for (int64_t axis : *op.attrs().axis) axes.push_back(static_cast<int>(axis));
  // The reduced coordinates' bits fall away from the register's number.
  std::vector<BitMove> moves;
  int next = 0;
  for (size_t i = 0; i < from.registers.size(); ++i)
    if (std::find(axes.begin(), axes.end(), from.registers[i].dim) == axes.end())
      moves.push_back({static_cast<int>(i), next++});
  Body body;
  Builder(body).unrolled("r", from.count(), [&](Builder& each, const Expr& r) {
    const Expr number = ir::converted(values_.element(operand, from, r), dtype);
    each.when(axes.empty() ? ir::truth(true) : bounds_.inside(operand, from, r, true, axes),
              [&](Builder& there) {
                there.combine(op.code(), ir::element(registers, move_bits(r, moves)), number);
              });
  });
  text(stage) += std::move(body);
}

Body Reductions::started(const RegisterTile& tile) {
  Body body;
  Builder to(body);
  to.declare(tile.registers);
  to.unrolled("r", tile.layout.count(), [&](Builder& each, const Expr& r) {
    each.assign(ir::element(tile.registers, r), ir::identity(tile.reduction, tile.dtype));
  });
  return body;
}

void Reductions::reduce(BlockValue value) {
  RegisterTile tile = reduced_tile(program_, value, values_.natural(program_.op(value).operands[0]));
  tile.registers = fresh_registers(base_name(value), ir::scalar_of(tile.dtype), tile.layout.count());
  tile.scope = now();
  text(now()) += started(tile);
  reduce_into(value, tile.registers, now());
  values_.hold(value, std::move(tile));
}

Body Reductions::rescale(BlockValue value, const RegisterTile& sums) {
  const BlockValue shift = program_.op(value).operands[1], factor = facts_.factors.at(shift);
  const std::vector<int> dims = operand_dims(program_.shape(value), program_.shape(factor));
  Body body;
  Builder(body).unrolled("r", sums.layout.count(), [&](Builder& each, const Expr& r) {
    const Expr sum = ir::element(sums.registers, r);
    const Value number =
        values_.element(factor, renumbered(sums.layout, dims), renumbered_index(r, sums.layout, dims));
    each.assign(sum, sum * number.as(DType::f32));
  });
  return body;
}

void Reductions::shift(BlockValue value) {
  const BlockValue operand = program_.op(value).operands[0];
  const RegisterLayout layout = values_.natural(operand);
  RegisterTile tile;
  tile.layout = layout;
  tile.dtype = register_type(program_.op(value).type.dtype);
  tile.reduction = OpCode::reduce_max;
  const Scalar type = ir::scalar_of(tile.dtype);
  tile.registers = fresh_registers(base_name(value), type, layout.count());
  Builder(body_.declared).add(started(tile));
  const auto factor_value = facts_.factors.find(value);
  Body body;
  Builder to(body);
  RegisterTile factor = tile;
  if (factor_value != facts_.factors.end()) {
    factor.registers = fresh_registers(base_name(value) + "_factor", type, layout.count());
    factor.scope = Stage::loop;
    to.declare(factor.registers);
  }
  to.unrolled("r", layout.count(), [&](Builder& each, const Expr& r) {
    const Expr number = ir::converted(values_.element(operand, layout, r), tile.dtype),
               top = ir::element(tile.registers, r);
    if (factor_value == facts_.factors.end()) return each.combine(OpCode::reduce_max, top, number);
    const Expr old = each.let(ir::make_variable("old", type), top);
    each.combine(OpCode::reduce_max, top, number);
    each.assign(ir::element(factor.registers, r),
                ir::call(ir::Function::shift_factor, Scalar::f32, {old, top}));
  });
  text(Stage::loop) += std::move(body);
  if (factor_value != facts_.factors.end()) values_.hold(factor_value->second, std::move(factor));
  values_.hold(value, std::move(tile));
}

RegisterTile Reductions::sums_of(BlockValue accumulator) const {
  const BlockOp& op = program_.op(accumulator);
  const BlockValue operand = op.operands[0];
  RegisterTile tile;
  if (!facts_.keeps_parts(accumulator)) {
    tile.layout = values_.natural(operand);
  } else if (plans_.contains(operand)) {
    tile.layout = plans_.of(operand).d;
    tile.partial_warps = plans_.of(operand).partial_warps;
  } else {
    tile = reduced_tile(program_, operand, values_.natural(program_.op(operand).operands[0]));
  }
  tile.dtype = register_type(op.type.dtype);
  tile.reduction = reduction_of(op.combine());
  tile.scope = Stage::before;
  return tile;
}

void Reductions::accumulate(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  if (op.combine() == Combine::concat) return moves_.concatenate_iterations(value);
  if (facts_.is_shift(value)) return shift(value);
  const bool parts = facts_.keeps_parts(value), pipelined = parts && plans_.pipelined().value == operand,
             rescaled = op.combine() == Combine::rescaled_sum;
  RegisterTile tile = sums_of(value);
  tile.registers = pipelined
                       ? pipelined_.sums()
                       : fresh_registers(base_name(value), ir::scalar_of(tile.dtype), tile.layout.count());
  Builder(body_.declared).add(started(tile));
  if (rescaled && !pipelined) text(Stage::loop) += rescale(value, tile);
  if (pipelined) {
    pipelined_.finish_iteration([&] { return rescaled ? rescale(value, tile) : Body{}; });
  } else if (parts && plans_.contains(operand)) {
    add_product(value, tile);
  } else if (parts) {
    reduce_into(operand, tile.registers, Stage::loop);
  } else {
    Body body;
    Builder(body).unrolled("r", tile.layout.count(), [&](Builder& each, const Expr& r) {
      each.combine(tile.reduction, ir::element(tile.registers, r),
                   ir::converted(values_.element(operand, tile.layout, r), tile.dtype));
    });
    text(Stage::loop) += std::move(body);
  }
  values_.hold(value, std::move(tile));
}

void Reductions::add_product(BlockValue accumulator, const RegisterTile& sums) {
  const BlockValue product = program_.op(accumulator).operands[0];
  products_.add(product, sums.registers, Stage::loop);
  const MatmulPlan& plan = plans_.of(product);
  if (plan.fma && sums.dtype == DType::f32) products_.free_of_vectors(sums.registers);
  if (plan.wgmma && plan.is_in_stage(plan.n_side())) outstanding_.push_back(sums.registers);
}

}  // namespace quern
