// What arithmetic the emitted kernel of a block graph does, where a muGraph leaves that open: the form of
// every exponential, the dtype in which operands enter products, which functions are approximate, what a loop
// reads of a running maximum. The emitter makes what these functions say, and whoever predicts its results
// asks the same functions: no rule has a copy.
//
// `program` is what lower_block makes of a kernel of a muGraph that note_rounded_values (core/verify) has
// seen.
#pragma once

#include "core/base/plan.h"
#include "core/codegen/block_program.h"
#include "core/mugraph/narrow.h"
#include "core/schedule/schedule.h"

namespace quern {

// How e^(value) is computed from its operand in f32.
enum class ExpForm : uint8_t {
  exact,  // expf(operand)
  fast,   // exp_fast(operand): exp2_fast(operand * log2(e)), the product rounded
  // exp_shifted(x, scale, shift): exp2_fast(fma(x, scale * log2(e), -(shift * log2(e)))), both products in
  // front of the fma rounded to f32. The operand itself is never made.
  shifted,
  // The same, but where |shift * log2(e)| is above kMostExpShift, both products are multiplied by what brings
  // it there: exp_shifted_bounded(x, scale, shift).
  shifted_bounded,
};
// At x * scale = shift the rounded products leave a difference of up to 2^-23 of the shift, and 2^23 too much
// is an infinity. So the shifted forms are for x * scale that the unfused program rounds to 16 bits, which
// moves it by more: f16 ends at 2^16, where the difference is below 2^-6. Those of bf16 reach 2^128. Above
// 2^20 they are 2^11 or more apart, or equal; bounded, the former are still 2^11 apart, and what is equal
// stays as near as at 2^20.
inline constexpr float kMostExpShift = 1 << 20;
struct ExpArithmetic {
  ExpForm form = ExpForm::exact;
  // Of the shifted forms, whose operand is x * scale - shift.
  BlockValue x = -1, shift = -1;
  double scale = 1;
  int down = 0;  // of all forms: the result is scaled by 2^-down, exactly (core/mugraph/numerators.h)
};
// `value` is an exponential; `approximate` is what approximate_functions says.
ExpArithmetic exp_arithmetic(const BlockProgram& program, BlockValue value, bool approximate);

// Whether exponentials, quotients and square roots of a plan with these outputs are exact to some 2^-21 only
// (exp_fast, divide_fast, sqrt_fast of the prelude): what 16-bit outputs do not show.
bool approximate_functions(const std::vector<TensorDesc>& outputs);

// As of core/mugraph/narrow.h.
inline std::optional<DType> narrow_dtype(const BlockProgram& program, BlockValue value) {
  return narrow_dtype(program.ops, value);
}
inline std::optional<DType> tensor_core_dtype(const BlockProgram& program, BlockValue product, bool tf32) {
  return tensor_core_dtype(program.ops, product, tf32);
}

}  // namespace quern
