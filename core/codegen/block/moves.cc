#include "core/codegen/block/moves.h"

namespace quern {

Body Moves::write_elements(BlockValue value, const Symbol& to, const Expr& start, const Ints& strides) {
  const RegisterLayout layout = values_.natural(value);
  const DType type = register_type(program_.op(value).type.dtype);
  Body body;
  Builder(body).when(leaders(layout), [&](Builder& some) {
    some.unrolled("r", layout.count(), [&](Builder& each, const Expr& r) {
      const Expr number = ir::converted(values_.element(value, layout, r), type),
                 valid = bounds_.inside(value, layout, r);
      each.when(bounds_.inside(value, layout, r, false), [&](Builder& there) {
        there.assign(ir::element(to, start + bounds_.offset(layout, strides, r)),
                     ir::select(valid, number, ir::literal(0, number.type())));
      });
    });
  });
  return body;
}

Symbol Moves::buffer_for(BlockValue value, SharedBuffer::Use use) {
  const TensorType& type = program_.op(value).type;
  return shared_buffer(ir::scalar_of(register_type(type.dtype)), type.element_count() * 4, use);
}

void Moves::read_elements(BlockValue value, const Symbol& from, const Expr& start, const Ints& strides,
                          Stage place) {
  RegisterTile tile;
  tile.dtype = register_type(program_.op(value).type.dtype);
  tile.layout = facts_.blocked(value, tile.dtype, -1);
  tile.scope = place;
  const Scalar type = ir::scalar_of(tile.dtype);
  tile.registers = fresh_registers(base_name(value), type, tile.layout.count());
  Body body;
  Builder to(body);
  to.declare(tile.registers);
  to.unrolled("r", tile.layout.count(), [&](Builder& each, const Expr& r) {
    const Expr element = ir::element(from, start + bounds_.offset(tile.layout, strides, r));
    each.assign(ir::element(tile.registers, r),
                ir::select(bounds_.inside(value, tile.layout, r, false), element, ir::literal(0, type)));
  });
  text(place) += std::move(body);
  values_.hold(value, std::move(tile));
}

void Moves::move(BlockValue value) {
  const BlockOp& op = program_.op(value);
  if (op.code() == OpCode::concat) return concatenate(value);
  const BlockValue operand = op.operands[0];
  const auto& dims = bounds_.dims(operand);
  if (op.code() == OpCode::reshape)
    for (const TileDim& dim : dims)
      if (dim.left) return fail(value, "reshapes a tile with ragged edges");
  const Symbol copy = buffer_for(operand);
  text(now()) += write_elements(operand, copy, 0, dense_strides(program_.shape(operand)));
  Ints strides = dense_strides(op.type.shape);
  int64_t start = 0;
  if (op.code() == OpCode::slice) {
    const Ints whole = dense_strides(program_.shape(operand));
    for (size_t d = 0; d < whole.size(); ++d) {
      if (dims[d].left && op.type.shape[d] != program_.shape(operand)[d])
        return fail(value, "slices a ragged edge");
      start += (*op.attrs().start)[d] * whole[d];
      strides[d] = (*op.attrs().step)[d] * whole[d];
    }
  }
  read_elements(value, copy, start, strides, now());
}

void Moves::concatenate(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const Ints own = dense_strides(op.type.shape);
  const Symbol buffer = buffer_for(value);
  const auto axis = static_cast<size_t>((*op.attrs().axis)[0]);
  Body write;
  int64_t start = 0;
  for (BlockValue operand : op.operands) {
    if (bounds_.dims(operand)[axis].left) return fail(value, "concatenates along a ragged edge");
    Builder(write).add(write_elements(operand, buffer, start * own[axis], own));
    start += program_.shape(operand)[axis];
  }
  text(now()) += std::move(write);
  read_elements(value, buffer, 0, own, now());
}

void Moves::concatenate_iterations(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  const size_t dim = static_cast<size_t>(op.concat_dim());
  if (kernel_.trip_count > 1 && bounds_.dims(operand)[dim].left)
    return fail(value, "joins iterations of different length");
  const Ints own = dense_strides(op.type.shape);
  const Symbol buffer = buffer_for(value, SharedBuffer::Use::loop_carried);
  const int64_t tile = program_.shape(operand)[dim];
  text(Stage::loop) += write_elements(operand, buffer, Expr(body_.iteration_number) * (tile * own[dim]), own);
  read_elements(value, buffer, 0, own, Stage::after);
}

}  // namespace quern
