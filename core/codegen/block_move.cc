// Whole tiles in shared memory, element by element: what moves elements to other places of a tile, or lays
// the tiles of several turns one after the other.
#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

namespace quern {

// The text that writes a tile, in registers' precision, with these strides from `to` on; zeros beyond ragged
// edges.
std::string BlockEmitter::write_elements(BlockValue value, const std::string& to, const Ints& strides) {
  const Spread spread = natural(value);
  const DType type = register_type(program_.op(value).type.dtype);
  const CudaText text_of_element = element(value, spread, "r");
  const std::string number = text_of_element.as(text_of_element.is_number() ? type : text_of_element.type());
  const std::string within = inside(value, spread, "r", false), valid = inside(value, spread, "r");
  std::string write = to + "[" + offset(spread, strides, "r") + "] = " +
                      (valid.empty() ? number : valid + " ? " + number + " : " + cuda_literal(0, type)) + ";";
  if (!within.empty()) write = "if (" + within + ") " + write;
  std::string loop =
      "#pragma unroll\nfor (int r = 0; r < " + std::to_string(spread.count()) + "; ++r) " + write + "\n";
  if (const std::string condition = leaders(spread); !condition.empty())
    loop = "if (" + condition + ") {\n" + indent(loop, 2) + "}\n";
  return loop;
}

int BlockEmitter::shared_copy(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const int buffer = shared_buffer(cuda_type(register_type(op.type.dtype)), op.type.element_count() * 4);
  const std::string name = shared_[static_cast<size_t>(buffer)].name;
  const std::string write = write_elements(value, name, dense_strides(op.type.shape));
  text(now_).add({write, {buffer}, {}});
  return buffer;
}

// The tile of `value` out of shared memory; `buffer` is -1 if no step of this stage has filled it.
void BlockEmitter::read_elements(BlockValue value, int buffer, const std::string& from, const Ints& strides,
                                 Stage place) {
  Array array;
  array.name = fresh(base_name(value));
  array.dtype = register_type(program_.op(value).type.dtype);
  array.spread = blocked(value, array.dtype, -1);
  array.scope = place;
  const std::string count = std::to_string(array.spread.count()),
                    within = inside(value, array.spread, "r", false), type = cuda_type(array.dtype);
  const std::string lines = type + " " + array.name + "[" + count +
                            "];\n#pragma unroll\nfor (int r = 0; r < " + count + "; ++r) " + array.name +
                            "[r] = " + (within.empty() ? "" : within + " ? ") + "(" + from + ")[" +
                            offset(array.spread, strides, "r") + "]" +
                            (within.empty() ? "" : " : " + cuda_literal(0, array.dtype)) + ";\n";
  BlockStep step{lines};
  if (buffer >= 0) step.reads = {buffer};
  text(place).add(std::move(step));
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
        if (!dim.left.empty()) return fail(value, "reshapes a tile with ragged edges");
    const int buffer = shared_copy(operand);
    std::string from = shared_[static_cast<size_t>(buffer)].name;
    Ints strides = own;
    if (op.code == OpCode::slice) {
      const Ints whole = dense_strides(program_.shape(operand));
      int64_t start = 0;
      for (size_t d = 0; d < whole.size(); ++d) {
        if (!dims[d].left.empty() && op.type.shape[d] != program_.shape(operand)[d])
          return fail(value, "slices a ragged edge");
        start += (*op.attrs.start)[d] * whole[d];
        strides[d] = (*op.attrs.step)[d] * whole[d];
      }
      from += " + " + std::to_string(start);
    }
    return read_elements(value, buffer, from, strides, now_);
  }
  const int buffer = shared_buffer(cuda_type(register_type(op.type.dtype)), op.type.element_count() * 4);
  const std::string name = shared_[static_cast<size_t>(buffer)].name;
  const auto axis = static_cast<size_t>((*op.attrs.axis)[0]);
  std::string write;
  int64_t start = 0;
  for (BlockValue operand : op.operands) {
    if (!dims_[static_cast<size_t>(operand)][axis].left.empty())
      return fail(value, "concatenates along a ragged edge");
    write += write_elements(operand, "(" + name + " + " + std::to_string(start * own[axis]) + ")", own);
    start += program_.shape(operand)[axis];
  }
  text(now_).add({write, {buffer}, {}});
  read_elements(value, buffer, name, own, now_);
}

// The turns' tiles lie one after the other in shared memory, which nobody else has until the end.
void BlockEmitter::join_turns(BlockValue value) {
  const BlockOp& op = program_.op(value);
  if (kernel_.turns > 1 &&
      !dims_[static_cast<size_t>(op.operands[0])][static_cast<size_t>(op.dim)].left.empty())
    return fail(value, "joins turns of different length");
  const Ints own = dense_strides(op.type.shape);
  const int buffer = shared_buffer(cuda_type(register_type(op.type.dtype)), op.type.element_count() * 4);
  joined_.insert(buffer);
  const std::string name = shared_[static_cast<size_t>(buffer)].name;
  const int64_t tile = program_.shape(op.operands[0])[static_cast<size_t>(op.dim)];
  text(Stage::loop) += write_elements(
      op.operands[0],
      "(" + name + " + turn * " + std::to_string(tile * own[static_cast<size_t>(op.dim)]) + ")", own);
  read_elements(value, -1, name, own, Stage::after);
}

}  // namespace quern
