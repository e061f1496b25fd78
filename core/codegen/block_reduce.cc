// Reductions and accumulators. Sums over lanes and warps stay partial as long as only sums are made of them.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

namespace quern {

namespace {

// What a reduction makes of `into` and a value; a truth value counts as a number.
std::string both(OpCode reduction, const std::string& into, const CudaText& value, DType type) {
  return cuda_combine(reduction, {into, type}, {value.as(value.is_number() ? type : value.type()), type},
                      type);
}

}  // namespace

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

BlockEmitter::Array BlockEmitter::reduce_into(BlockValue value, const std::string& name, Stage stage) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  const Spread from = natural(operand);
  Array array = reduced_array(value, from);
  array.name = name;
  const CudaText number = element(operand, from, "r");
  std::vector<int> axes;
  for (int64_t axis : *op.attrs.axis) axes.push_back(static_cast<int>(axis));
  const std::string valid = axes.empty() ? "" : inside(operand, from, "r", true, axes);
  // The reduced coordinates' bits fall away from the register's number.
  std::vector<BitMove> moves;
  int next = 0;
  for (size_t i = 0; i < from.registers.size(); ++i)
    if (std::find(axes.begin(), axes.end(), from.registers[i].dim) == axes.end())
      moves.push_back({static_cast<int>(i), next++});
  const std::string into = name + "[" + move_bits("r", moves) + "]";
  std::string line = into + " = " + both(op.code, into, number, array.dtype) + ";\n";
  if (!valid.empty()) line = "if (" + valid + ") " + line;
  text(stage) += "#pragma unroll\nfor (int r = 0; r < " + std::to_string(from.count()) + "; ++r) " + line;
  return array;
}

void BlockEmitter::reduce(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const Array shape = reduced_array(value, natural(op.operands[0]));
  const std::string name = fresh(base_name(value)), count = std::to_string(shape.spread.count()),
                    type = cuda_type(shape.dtype);
  text(now_) += type + " " + name + "[" + count + "];\n#pragma unroll\nfor (int r = 0; r < " + count +
                "; ++r) " + name + "[r] = " + cuda_identity(op.code, shape.dtype) + ";\n";
  Array array = reduce_into(value, name, now_);
  array.scope = now_ == Stage::before ? Stage::before : now_;
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

std::string BlockEmitter::rescale(BlockValue value, const Array& sums) {
  const BlockValue shift = program_.op(value).operands[1], factor = factors_.at(shift);
  const std::vector<int> dims = operand_dims(program_.shape(value), program_.shape(factor));
  const CudaText number =
      element(factor, renumbered(sums.spread, dims), renumbered_index("r", sums.spread, dims));
  return "#pragma unroll\nfor (int r = 0; r < " + std::to_string(sums.spread.count()) + "; ++r) " +
         sums.name + "[r] *= " + number.as(DType::f32) + ";\n";
}

// A running maximum, and the factor by which it shifts what was summed before.
void BlockEmitter::shift(BlockValue value) {
  const BlockValue operand = program_.op(value).operands[0];
  const Spread spread = natural(operand);
  const CudaText number = element(operand, spread, "r");
  Array array;
  array.name = fresh(base_name(value));
  array.spread = spread;
  array.dtype = register_type(program_.op(value).type.dtype);
  const std::string count = std::to_string(spread.count()), type = cuda_type(array.dtype);
  declared_ += type + " " + array.name + "[" + count + "];\n#pragma unroll\nfor (int r = 0; r < " + count +
               "; ++r) " + array.name + "[r] = " + cuda_identity(OpCode::reduce_max, array.dtype) + ";\n";
  std::string line =
      array.name + "[r] = " + both(OpCode::reduce_max, array.name + "[r]", number, array.dtype) + ";\n";
  if (const auto at = factors_.find(value); at != factors_.end()) {
    Array factor = array;
    factor.name = fresh(base_name(value) + "_factor");
    factor.scope = Stage::loop;
    text(Stage::loop) += type + " " + factor.name + "[" + count + "];\n";
    line = "{\n  const float old = " + array.name + "[r];\n  " + line + "  " + factor.name +
           "[r] = shift_factor(old, " + array.name + "[r]);\n}\n";
    arrays_[static_cast<size_t>(at->second)].push_back(std::move(factor));
  }
  text(Stage::loop) += "#pragma unroll\nfor (int r = 0; r < " + count + "; ++r) " + line;
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
  if (const auto plan = plans_.find(operand); plan != plans_.end())
    return plan->second.tensor_cores && reduction_of(op.combine) == OpCode::reduce_sum;
  return program_.is_compute(operand, OpKind::reduction) &&
         program_.op(operand).code == reduction_of(op.combine);
}

void BlockEmitter::accumulate(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  if (op.combine == Combine::concat) return join_turns(value);
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
  const bool late = product && late_.value == operand;
  array.name = late ? late_.sums : fresh(base_name(value));
  array.scope = Stage::before;
  const std::string count = std::to_string(array.spread.count()), type = cuda_type(array.dtype);
  const std::string start = cuda_identity(code, array.dtype);
  declared_ += type + " " + array.name + "[" + count + "];\n#pragma unroll\nfor (int r = 0; r < " + count +
               "; ++r) " + array.name + "[r] = " + start + ";\n";
  if (op.combine == Combine::rescaled_sum && !late) text(Stage::loop) += rescale(value, array);
  if (late) {
    finish_late_turn(value, array);
  } else if (product) {
    matmul(operand, array.name, Stage::loop);
    const MatmulPlan& plan = plans_.at(operand);
    if (plan.wgmma && !plan.made_by_all[static_cast<size_t>(1 - plan.tall)]) in_flight_.push_back(array.name);
  } else if (reduction) {
    reduce_into(operand, array.name, Stage::loop);
  } else {
    const CudaText number = element(operand, array.spread, "r");
    text(Stage::loop) += "#pragma unroll\nfor (int r = 0; r < " + count + "; ++r) " + array.name +
                         "[r] = " + both(code, array.name + "[r]", number, array.dtype) + ";\n";
  }
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

}  // namespace quern
