// A block graph in a form to emit: primitive operators only, numbers instead of extents, who uses what, and
// how far each tile reaches.
#pragma once

#include <algorithm>
#include <optional>

#include "core/schedule/tensor_place.h"

namespace quern {

inline bool is_cast(const BlockOp& op) { return op.is_compute(OpCode::cast); }

struct BlockProgram {
  std::vector<BlockOp> ops;
  std::vector<Stage> stages;
  std::vector<std::vector<BlockValue>> users;

  const BlockOp& op(BlockValue value) const { return ops[static_cast<size_t>(value)]; }
  const Ints& shape(BlockValue value) const { return op(value).type.shape; }
  Stage stage(BlockValue value) const { return stages[static_cast<size_t>(value)]; }
  bool is_compute(BlockValue value, OpKind kind) const { return op(value).is_compute(kind); }
  bool is_number(BlockValue value) const { return op(value).is_compute(OpCode::constant); }
  // Made of numbers alone.
  bool is_fixed(BlockValue value) const {
    return is_number(value) || (is_compute(value, OpKind::elementwise) &&
                                std::all_of(op(value).operands.begin(), op(value).operands.end(),
                                            [this](BlockValue operand) { return is_fixed(operand); }));
  }
  // Elements are numbers that the dtype has, as those of masks are.
  bool has_numbers_of(BlockValue value, DType dtype) const {
    const BlockOp& op = this->op(value);
    if (is_number(value)) return round_to(dtype, op.number()) == op.number();
    if (is_cast(op)) return *op.attrs().dtype == dtype || has_numbers_of(op.operands[0], dtype);
    return op.is_compute(OpCode::where) && has_numbers_of(op.operands[1], dtype) &&
           has_numbers_of(op.operands[2], dtype);
  }
  // Has one user, and that is it.
  bool only_for(BlockValue value, BlockValue user) const {
    const auto& all = users[static_cast<size_t>(value)];
    return all.size() == 1 && all[0] == user;
  }
};

// Operators that only number the dimensions differently: for each dimension of the operand its number in the
// result, -1 for one of extent 1 that goes. Empty for operators that do more.
std::vector<int> view_dims(const BlockProgram& program, BlockValue value);
// Whether that is all that a movement operator does.
bool is_view(const BlockProgram& program, BlockValue value);

// Which operand of a value is what a positive number scales, which leaves infinities and the order of elements what they are;
// nothing if none is.
std::optional<size_t> scaled_operand(const BlockProgram& program, const BlockOp& scaled);

// `kernel` is custom, of a muGraph that is valid. What no store needs is left out. Products of concatenated
// operands become sums of products, and operands that are vectors matrices of one row or column. What the
// loop reads of a running maximum becomes a select: 0 while the maximum is -inf. Factors that the search has
// put in front of a product or a sum go behind it, where they may overflow or round what the graph does not
// round.
BlockProgram lower_block(const MuGraph& mugraph, const MuKernel& kernel);

}  // namespace quern
