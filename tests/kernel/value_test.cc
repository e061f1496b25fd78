// The meaning of operators and reductions as expressions over the device prelude.
#include "core/kernel/value.h"

#include <cmath>

#include "core/lang/meaning.h"
#include "tests/support/test.h"

namespace quern::ir {
namespace {

Expr named(const char* name, DType type) {
  return Expr(std::make_shared<const SymbolData>(
      SymbolData{name, Space::variable, scalar_of(type), 1, false, false, nullptr}));
}

std::string text(const Expr& expr) { return print(expr); }

std::string text(OpCode code, DType type) {
  const Value operands[] = {named("a", type), named("b", type), named("c", type)};
  const Value select[] = {named("a", DType::boolean), named("b", type), named("c", type)};
  const Value value = apply_meaning(code, code == OpCode::where ? select : operands);
  return text(value.as(value.type()));
}

void operators_become_functions_of_the_prelude(void**) {
  assert_text_equal(text(OpCode::silu, DType::f32), "a / __fadd_rn(1.000000000e+00f, expf(-a))");
  assert_text_equal(text(OpCode::sub, DType::f32), "__fsub_rn(a, b)");
  assert_text_equal(text(OpCode::relu, DType::f32), "max_nan(a, 0.000000000e+00f)");
  assert_text_equal(text(OpCode::relu, DType::i32), "max_int(a, 0)");
  assert_text_equal(text(OpCode::add, DType::i32), "wrap_add(a, b)");
  assert_text_equal(text(OpCode::lt, DType::f32), "a < b");
  assert_text_equal(text(OpCode::where, DType::f32), "a ? b : c");
}

void quotients_are_as_exact_as_they_must_be(void**) {
  const Value a = named("a", DType::f32);
  assert_text_equal(text((a / Value(8)).as(DType::f32)), "a * 1.250000000e-01f");
  assert_text_equal(text((a / a).as(DType::f32)), "a / a");
  assert_text_equal(text((a / Value(3)).as(DType::f32)), "divide_common(a, 3.000000000e+00f)");
  assert_text_equal(text((a.approximate() / Value(3)).as(DType::f32)), "divide_common(a, 3.000000000e+00f)");
  assert_text_equal(text((a.approximate() / a).as(DType::f32)), "divide_fast(a, a)");
  assert_text_equal(text((a / a.shared_divisor()).as(DType::f32)), "divide_common(a, a)");
  // Numbers alone are f32, not integers.
  assert_true((Value(1) / Value(3)).as(DType::f32).type() == Scalar::f32);
  assert_text_equal(text((Value(1) / Value(8)).as(DType::f32)), "1.000000000e+00f * 1.250000000e-01f");
}

void literals_are_exact(void**) {
  assert_text_equal(literal_text(-INFINITY, Scalar::f32), "(-infinity())");
  assert_text_equal(literal_text(NAN, Scalar::f32), "quiet_nan()");
  assert_text_equal(literal_text(INT32_MIN, Scalar::i32), "(-2147483647 - 1)");
  assert_true(std::stof(literal_text(0.1, Scalar::f32)) == 0.1f);
}

void reductions_have_identity_and_combiner(void**) {
  assert_text_equal(text(identity(OpCode::reduce_max, DType::i32)), "(-2147483647 - 1)");
  assert_text_equal(text(identity(OpCode::reduce_min, DType::f32)), "infinity()");
  assert_text_equal(text(combiner(OpCode::reduce_min, Scalar::i32)),
                    "[](int x, int y) { return min_int(x, y); }");
  // A sum may become one fma with the product that is added.
  const Value x = named("x", DType::f32),
              product = Value(named("y", DType::f32)) * Value(named("z", DType::f32));
  assert_text_equal(text(combine(OpCode::reduce_sum, x, product, DType::f32)), "x + y * z");
}

void conversions_keep_what_the_language_says(void**) {
  assert_text_equal(text(converted(named("n", DType::i32), DType::f32)), "float(n)");
  assert_text_equal(text(converted(named("x", DType::f32), DType::i32)), "from_float<int>(x)");
  assert_text_equal(text(converted(named("x", DType::f32), DType::boolean)), "x != 0.000000000e+00f");
  assert_text_equal(text(rounded(named("x", DType::f32), DType::bf16)), "from_float<bf16>(x)");
}

}  // namespace
}  // namespace quern::ir

int main() {
  using namespace quern::ir;
  const CMUnitTest tests[] = {cmocka_unit_test(operators_become_functions_of_the_prelude),
                              cmocka_unit_test(quotients_are_as_exact_as_they_must_be),
                              cmocka_unit_test(literals_are_exact),
                              cmocka_unit_test(reductions_have_identity_and_combiner),
                              cmocka_unit_test(conversions_keep_what_the_language_says)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
