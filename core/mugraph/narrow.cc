#include "core/mugraph/narrow.h"

#include <algorithm>
#include <cmath>

#include "core/base/dtype_info.h"

namespace quern {

namespace {

using Ops = std::vector<BlockOp>;

const BlockOp& at(const Ops& ops, BlockValue value) { return ops[static_cast<size_t>(value)]; }
bool is_number(const BlockOp& op) { return op.is_compute(OpCode::constant); }

// Made of numbers alone.
bool is_fixed(const Ops& ops, BlockValue value) {
  const BlockOp& op = at(ops, value);
  return is_number(op) || (op.is_compute(OpKind::elementwise) &&
                           std::all_of(op.operands.begin(), op.operands.end(),
                                       [&](BlockValue operand) { return is_fixed(ops, operand); }));
}

// Whether all loads behind a value, but for those of conditions, are of narrow floats.
bool is_of_narrow(const Ops& ops, BlockValue value) {
  const BlockOp& op = at(ops, value);
  if (op.is_load()) return op.of_narrow;
  if (op.is_compute(OpCode::cast)) return is_narrow(*op.attrs().dtype);
  for (size_t i = 0; i < op.operands.size(); ++i)
    if (!(op.is_compute(OpCode::where) && i == 0) && !is_of_narrow(ops, op.operands[i])) return false;
  return true;
}

// Whether the result of a reduction broadcasts to its operand: it has all dimensions, or the first are
// reduced.
bool broadcasts_back(const BlockOp& op) {
  if (op.attrs().keepdims.value_or(false)) return true;
  for (size_t i = 0; op.attrs().axis && i < op.attrs().axis->size(); ++i)
    if ((*op.attrs().axis)[i] != static_cast<int64_t>(i)) return false;
  return op.attrs().axis.has_value();
}

// Accumulators and clusters, as reductions, take the largest element.
bool takes_maximum(const BlockOp& op) {
  return (op.is_compute(OpCode::reduce_max) && broadcasts_back(op)) ||
         (op.has_combine() && op.combine() == Combine::max);
}

// Whether all elements of the result are elements of the operands, or these with another sign.
bool selects(const BlockOp& op) {
  if (takes_maximum(op) || op.is_compute(OpCode::reduce_max) || op.is_compute(OpCode::reduce_min) ||
      op.is_compute(OpKind::movement))
    return true;
  if (op.is_accumulate()) return op.combine() == Combine::concat;
  for (OpCode code : {OpCode::where, OpCode::max, OpCode::min, OpCode::neg, OpCode::abs, OpCode::relu})
    if (op.is_compute(code)) return true;
  return false;
}

// A value behind positive factors.
struct Scaled {
  BlockValue value;
  double factor = 1;
};
Scaled without_factors(const Ops& ops, Scaled scaled) {
  for (;;) {
    const BlockOp& op = at(ops, scaled.value);
    const bool quotient = op.is_compute(OpCode::div);
    if (!quotient && !op.is_compute(OpCode::mul)) return scaled;
    const size_t number = !quotient && is_number(at(ops, op.operands[0])) ? 0 : 1;
    const BlockOp& by = at(ops, op.operands[number]);
    if (!is_number(by) || !by.extents().empty() || !(by.number() > 0)) return scaled;
    scaled.factor = quotient ? scaled.factor / by.number() : scaled.factor * by.number();
    scaled.value = op.operands[1 - number];
  }
}

// Whether a value is a maximum of the scores and perhaps of others, behind factors. What a loop reads of a running maximum
// may be a select between it and 0.
bool is_maximum_of(const Ops& ops, Scaled value, const Scaled& scores, bool found = false) {
  for (;;) {
    value = without_factors(ops, value);
    if (found && value.value == scores.value && std::fabs(value.factor / scores.factor - 1) < 1e-6)
      return true;
    const BlockOp& op = at(ops, value.value);
    if (op.is_compute(OpCode::max))
      return is_maximum_of(ops, {op.operands[0], value.factor}, scores, found) ||
             is_maximum_of(ops, {op.operands[1], value.factor}, scores, found);
    if (takes_maximum(op))
      value.value = op.operands[0];
    else if (op.is_compute(OpCode::where) && is_number(at(ops, op.operands[1])) &&
             at(ops, op.operands[1]).number() == 0 && at(ops, op.operands[0]).is_compute(OpCode::eq) &&
             at(ops, op.operands[0]).operands[0] == op.operands[2])
      value.value = op.operands[2];
    else
      return false;
    found |= takes_maximum(op);
  }
}

}  // namespace

bool is_numerator(const Ops& ops, const BlockOp& op) {
  if (!op.is_compute(OpCode::exp) || !at(ops, op.operands[0]).is_compute(OpCode::sub)) return false;
  const std::vector<BlockValue>& difference = at(ops, op.operands[0]).operands;
  return is_maximum_of(ops, {difference[1]}, without_factors(ops, {difference[0]}));
}

void note_narrow_loads(MuGraph& mugraph) {
  auto narrow = [&](int32_t tensor) {
    return is_narrow(mugraph.tensors[static_cast<size_t>(tensor)].type.dtype);
  };
  std::vector<bool> of_narrow(mugraph.tensors.size(), true);
  for (int32_t input : mugraph.inputs)
    of_narrow[static_cast<size_t>(input)] =
        narrow(input) || mugraph.tensors[static_cast<size_t>(input)].type.dtype == DType::boolean;
  for (MuKernel& kernel : mugraph.kernels) {
    for (BlockOp& op : kernel.ops) {
      if (!op.is_load()) continue;
      if (narrow(op.tensor())) op.rounds_to = mugraph.tensors[static_cast<size_t>(op.tensor())].type.dtype;
      op.of_narrow = of_narrow[static_cast<size_t>(op.tensor())];
    }
    for (const BlockOp& op : kernel.ops)
      if (op.is_store())
        of_narrow[static_cast<size_t>(op.tensor())] =
            narrow(op.tensor()) || is_of_narrow(kernel.ops, op.operands[0]);
    for (int32_t operand : kernel.operands)
      of_narrow[static_cast<size_t>(kernel.result)] =
          narrow(kernel.result) ||
          (of_narrow[static_cast<size_t>(kernel.result)] && of_narrow[static_cast<size_t>(operand)]);
  }
}

void note_in_f32(MuGraph& mugraph) {
  std::vector<bool> in_f32(mugraph.tensors.size());
  auto is_f32 = [&](int32_t tensor) {
    return mugraph.tensors[static_cast<size_t>(tensor)].type.dtype == DType::f32;
  };
  for (int32_t output : mugraph.outputs) in_f32[static_cast<size_t>(output)] = is_f32(output);
  for (auto kernel = mugraph.kernels.rbegin(); kernel != mugraph.kernels.rend(); ++kernel) {
    for (int32_t operand : kernel->operands)
      if (is_f32(operand) && in_f32[static_cast<size_t>(kernel->result)])
        in_f32[static_cast<size_t>(operand)] = true;
    for (auto op = kernel->ops.rbegin(); op != kernel->ops.rend(); ++op) {
      if (op->is_store()) op->in_f32 = in_f32[static_cast<size_t>(op->tensor())];
      if (!op->in_f32) continue;
      for (BlockValue operand : op->operands) {
        BlockOp& from = kernel->ops[static_cast<size_t>(operand)];
        if (!from.rounds_to) from.in_f32 = true;
      }
      if (op->is_load() && is_f32(op->tensor())) in_f32[static_cast<size_t>(op->tensor())] = true;
    }
  }
}

std::optional<DType> narrow_dtype(const Ops& ops, BlockValue value, bool exactly) {
  const BlockOp& op = at(ops, value);
  if (op.rounds_to) return exactly && op.in_f32 ? std::nullopt : op.rounds_to;
  if (op.is_compute(OpCode::cast)) return is_narrow(*op.attrs().dtype) ? op.attrs().dtype : std::nullopt;
  if (is_numerator(ops, op)) {
    const BlockValue scores = at(ops, op.operands[0]).operands[0];
    if (exactly) return std::nullopt;
    return at(ops, scores).softmax_rounds_to ? at(ops, scores).softmax_rounds_to : narrow_dtype(ops, scores);
  }
  if (!selects(op)) return std::nullopt;
  std::optional<DType> all;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if ((op.is_compute(OpCode::where) && i == 0) || is_fixed(ops, op.operands[i])) continue;
    const std::optional<DType> own = narrow_dtype(ops, op.operands[i], exactly);
    if (!own || (all && *all != *own)) return std::nullopt;
    all = own;
  }
  for (BlockValue operand : op.operands)
    if (const BlockOp& number = at(ops, operand); all && is_fixed(ops, operand))
      if (!is_number(number) || round_to(*all, number.number()) != number.number()) return std::nullopt;
  return all;
}

std::optional<DType> tensor_core_dtype(const Ops& ops, BlockValue product, bool tf32) {
  const BlockOp& op = at(ops, product);
  const BlockValue left = op.operands[0], right = op.operands[1];
  const std::optional<DType> narrow = narrow_dtype(ops, left, op.in_f32);
  if (narrow && narrow == narrow_dtype(ops, right, op.in_f32) && dtype_info(*narrow).tensor_cores)
    return narrow;
  if (!is_float(at(ops, left).type.dtype) || !is_float(at(ops, right).type.dtype)) return std::nullopt;
  const bool are_narrow = !op.in_f32 && is_of_narrow(ops, left) && is_of_narrow(ops, right);
  return tf32 || are_narrow ? std::optional(DType::f32) : std::nullopt;
}

}  // namespace quern
