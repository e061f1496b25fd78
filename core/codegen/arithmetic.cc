#include "core/codegen/arithmetic.h"

#include "core/base/dtype_info.h"

namespace quern {

ExpArithmetic exp_arithmetic(const BlockProgram& program, BlockValue value, bool approximate) {
  ExpArithmetic out = {approximate ? ExpForm::fast : ExpForm::exact};
  out.down = program.op(value).down;
  if (!approximate) return out;
  const BlockValue difference = program.op(value).operands[0];
  auto is = [&](BlockValue inner, OpCode code) {
    return program.op(inner).is_compute(code) && program.users[static_cast<size_t>(inner)].size() == 1 &&
           is_float(program.op(inner).type.dtype);
  };
  if (!is(difference, OpCode::sub)) return out;
  const std::optional<DType> rounded = narrow_dtype(program, program.op(difference).operands[0]);
  if (!rounded) return out;
  out.form = has_finite_products(*rounded) ? ExpForm::shifted : ExpForm::shifted_bounded;
  out.x = program.op(difference).operands[0];
  out.shift = program.op(difference).operands[1];
  while (is(out.x, OpCode::mul) || is(out.x, OpCode::div)) {
    const BlockOp& scaled = program.op(out.x);
    const size_t number = scaled.code() == OpCode::mul && program.is_number(scaled.operands[0]) ? 0 : 1;
    if (!program.is_number(scaled.operands[number]) || program.is_number(scaled.operands[1 - number])) break;
    const double by = program.op(scaled.operands[number]).number();
    out.scale = scaled.code() == OpCode::mul ? out.scale * by : out.scale / by;
    out.x = scaled.operands[1 - number];
  }
  return out;
}

bool approximate_functions(const std::vector<TensorDesc>& outputs) {
  return std::all_of(outputs.begin(), outputs.end(),
                     [](const TensorDesc& output) { return is_narrow(output.dtype); });
}

}  // namespace quern
