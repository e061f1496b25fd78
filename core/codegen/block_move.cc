// Whole tiles in shared memory, element by element: what moves elements to other places of a tile, or lays
// the tiles of several iterations one after the other.
#include "core/codegen/block_emitter.h"

namespace quern {

// Writes a tile, in registers' precision, with these strides from element `start` of `to` on; zeros beyond
// ragged edges.
Body BlockEmitter::write_elements(BlockValue value, const Symbol& to, const Expr& start,
                                  const Ints& strides) {
  const Spread spread = natural(value);
  const DType type = register_type(program_.op(value).type.dtype);
  Body body;
  Builder(body).when(leaders(spread), [&](Builder& some) {
    some.unrolled("r", spread.count(), [&](Builder& each, const Expr& r) {
      const Expr number = ir::converted(element(value, spread, r), type), valid = inside(value, spread, r);
      each.when(inside(value, spread, r, false), [&](Builder& there) {
        there.assign(ir::element(to, start + offset(spread, strides, r)),
                     ir::select(valid, number, ir::literal(0, number.type())));
      });
    });
  });
  return body;
}

Symbol BlockEmitter::shared_copy(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const Symbol buffer =
      shared_buffer(ir::scalar_of(register_type(op.type.dtype)), op.type.element_count() * 4);
  text(now_) += write_elements(value, buffer, 0, dense_strides(op.type.shape));
  return buffer;
}

// The tile of `value` out of shared memory, from element `start` on.
void BlockEmitter::read_elements(BlockValue value, const Symbol& from, const Expr& start, const Ints& strides,
                                 Stage place) {
  Array array;
  array.dtype = register_type(program_.op(value).type.dtype);
  array.spread = blocked(value, array.dtype, -1);
  array.scope = place;
  const Scalar type = ir::scalar_of(array.dtype);
  array.registers = fresh_registers(base_name(value), type, array.spread.count());
  Body body;
  Builder to(body);
  to.declare(array.registers);
  to.unrolled("r", array.spread.count(), [&](Builder& each, const Expr& r) {
    const Expr element = ir::element(from, start + offset(array.spread, strides, r));
    each.assign(ir::element(array.registers, r),
                ir::select(inside(value, array.spread, r, false), element, ir::literal(0, type)));
  });
  text(place) += std::move(body);
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

// A reshape, slice or concat that is no view.
void BlockEmitter::move(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const Ints own = dense_strides(op.type.shape);
  if (op.code != OpCode::concat) {
    const BlockValue operand = op.operands[0];
    const auto& dims = dims_[static_cast<size_t>(operand)];
    if (op.code == OpCode::reshape)
      for (const TileDim& dim : dims)
        if (dim.left) return fail(value, "reshapes a tile with ragged edges");
    const Symbol from = shared_copy(operand);
    Ints strides = own;
    int64_t start = 0;
    if (op.code == OpCode::slice) {
      const Ints whole = dense_strides(program_.shape(operand));
      for (size_t d = 0; d < whole.size(); ++d) {
        if (dims[d].left && op.type.shape[d] != program_.shape(operand)[d])
          return fail(value, "slices a ragged edge");
        start += (*op.attrs.start)[d] * whole[d];
        strides[d] = (*op.attrs.step)[d] * whole[d];
      }
    }
    return read_elements(value, from, start, strides, now_);
  }
  const Symbol buffer =
      shared_buffer(ir::scalar_of(register_type(op.type.dtype)), op.type.element_count() * 4);
  const auto axis = static_cast<size_t>((*op.attrs.axis)[0]);
  Body write;
  int64_t start = 0;
  for (BlockValue operand : op.operands) {
    if (dims_[static_cast<size_t>(operand)][axis].left)
      return fail(value, "concatenates along a ragged edge");
    Builder(write).add(write_elements(operand, buffer, start * own[axis], own));
    start += program_.shape(operand)[axis];
  }
  text(now_) += std::move(write);
  read_elements(value, buffer, 0, own, now_);
}

// The iterations' tiles lie one after the other in shared memory, which nobody else has until the end.
void BlockEmitter::concatenate_iterations(BlockValue value) {
  const BlockOp& op = program_.op(value);
  if (kernel_.trip_count > 1 && dims_[static_cast<size_t>(op.operands[0])][static_cast<size_t>(op.dim)].left)
    return fail(value, "joins iterations of different length");
  const Ints own = dense_strides(op.type.shape);
  const Symbol buffer = shared_buffer(ir::scalar_of(register_type(op.type.dtype)),
                                      op.type.element_count() * 4, SharedBuffer::Use::loop_carried);
  const int64_t tile = program_.shape(op.operands[0])[static_cast<size_t>(op.dim)];
  text(Stage::loop) += write_elements(
      op.operands[0], buffer, Expr(iteration_number_) * (tile * own[static_cast<size_t>(op.dim)]), own);
  read_elements(value, buffer, 0, own, Stage::after);
}

}  // namespace quern
