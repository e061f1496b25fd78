#include "core/codegen/arithmetic.h"

namespace quern {

ExpArithmetic exp_arithmetic(const BlockProgram& program, BlockValue value, bool approximate) {
  if (!approximate) return {ExpForm::exact};
  const BlockValue difference = program.op(value).operands[0];
  auto is = [&](BlockValue inner, OpCode code) {
    return program.op(inner).kind == BlockOp::Kind::compute && program.op(inner).code == code &&
           program.users[static_cast<size_t>(inner)].size() == 1 && is_float(program.op(inner).type.dtype);
  };
  if (!is(difference, OpCode::sub)) return {ExpForm::fast};
  const std::optional<DType> rounded = narrow_dtype(program, program.op(difference).operands[0]);
  if (!rounded) return {ExpForm::fast};
  ExpArithmetic out = {*rounded == DType::f16 ? ExpForm::shifted : ExpForm::shifted_bounded};
  out.x = program.op(difference).operands[0];
  out.shift = program.op(difference).operands[1];
  while (is(out.x, OpCode::mul) || is(out.x, OpCode::div)) {
    const BlockOp& scaled = program.op(out.x);
    const size_t number = scaled.code == OpCode::mul && program.is_number(scaled.operands[0]) ? 0 : 1;
    if (!program.is_number(scaled.operands[number]) || program.is_number(scaled.operands[1 - number])) break;
    const double by = program.op(scaled.operands[number]).number;
    out.scale = scaled.code == OpCode::mul ? out.scale * by : out.scale / by;
    out.x = scaled.operands[1 - number];
  }
  return out;
}

bool approximate_functions(const std::vector<TensorDesc>& outputs) {
  return std::all_of(outputs.begin(), outputs.end(),
                     [](const TensorDesc& output) { return dtype_size(output.dtype) == 2; });
}

std::optional<DType> narrow_dtype(const BlockProgram& program, BlockValue value) {
  const BlockOp& op = program.op(value);
  if (op.kind == BlockOp::Kind::load) return op.rounds_to;
  if (is_cast(op)) return dtype_size(*op.attrs.dtype) == 2 ? op.attrs.dtype : std::nullopt;
  std::optional<DType> all;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const BlockValue operand = op.operands[i];
    const bool condition = op.kind == BlockOp::Kind::compute && op.code == OpCode::where && i == 0;
    if (condition || program.is_fixed(operand)) continue;
    const std::optional<DType> own = narrow_dtype(program, operand);
    if (!own || (all && *all != *own)) return std::nullopt;
    all = own;
  }
  return all;
}

std::optional<DType> tensor_core_dtype(const BlockProgram& program, BlockValue product, bool tf32) {
  const BlockOp& op = program.op(product);
  const BlockValue left = op.operands[0], right = op.operands[1];
  const std::optional<DType> narrow = narrow_dtype(program, left);
  if (narrow && narrow == narrow_dtype(program, right)) return narrow;
  if (tf32 && is_float(program.op(left).type.dtype) && is_float(program.op(right).type.dtype))
    return DType::f32;
  return std::nullopt;
}

}  // namespace quern
