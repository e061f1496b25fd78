// The meanings of ops.def over real numbers, integers and CUDA text.
#include "core/lang/meaning.h"

#include <cmath>

#include "core/lang/value_real.h"
#include "tests/support/test.h"

using namespace quern;

static double real(OpCode code, double x, double y = 0, double z = 0) {
  const Real operands[] = {x, y, z};
  return apply_meaning(code, operands).v;
}
static int32_t integer(OpCode code, double x, double y = 0, double z = 0) {
  const Int operands[] = {x, y, z};
  return apply_meaning(code, operands).v;
}
static bool near(double a, double b) { return std::fabs(a - b) <= 1e-14 * std::max(1.0, std::fabs(b)); }

// Against definitions written another way.
static void real_values(void**) {
  for (double x : {-3.7, -1.0, -0.25, 0.0, 0.5, 1.0, 2.5, 6.0}) {
    assert_true(real(OpCode::neg, x) == -x && real(OpCode::abs, x) == std::fabs(x));
    assert_true(near(real(OpCode::exp, x), std::exp(x)) && near(real(OpCode::tanh, x), std::tanh(x)));
    assert_true(near(real(OpCode::erf, x), std::erf(x)) && real(OpCode::square, x) == x * x);
    assert_true(real(OpCode::relu, x) == (x > 0 ? x : 0));
    assert_true(near(real(OpCode::sigmoid, x), 0.5 * (1 + std::tanh(x / 2))));
    assert_true(near(real(OpCode::silu, x), x * 0.5 * (1 + std::tanh(x / 2))));
    assert_true(near(real(OpCode::gelu, x), x * std::erfc(-x / std::sqrt(2.0)) / 2));
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    assert_true(near(real(OpCode::gelu_tanh, x), 0.5 * x * (1 + std::tanh(u))));
    if (x > 0) {
      assert_true(near(real(OpCode::log, x), std::log(x)) && near(real(OpCode::sqrt, x), std::sqrt(x)));
      assert_true(near(real(OpCode::rsqrt, x), std::pow(x, -0.5)) &&
                  near(real(OpCode::reciprocal, x), 1 / x));
    }
    for (double y : {-2.0, 0.5, 3.0}) {
      assert_true(real(OpCode::add, x, y) == x + y && real(OpCode::sub, x, y) == x - y);
      assert_true(real(OpCode::mul, x, y) == x * y && real(OpCode::div, x, y) == x / y);
      assert_true(real(OpCode::max, x, y) == std::fmax(x, y) && real(OpCode::min, x, y) == std::fmin(x, y));
      assert_true(real(OpCode::lt, x, y) == (x < y) && real(OpCode::le, x, y) == (x <= y));
      assert_true(real(OpCode::eq, x, y) == (x == y) && real(OpCode::eq, x, x) == 1);
      if (x > 0) assert_true(near(real(OpCode::pow, x, y), std::pow(x, y)));
      assert_true(real(OpCode::where, 1, x, y) == x && real(OpCode::where, 0, x, y) == y);
    }
  }
}

static void not_a_number_goes_through(void**) {
  for (OpCode code : {OpCode::max, OpCode::min}) {
    assert_true(std::isnan(real(code, NAN, 1)) && std::isnan(real(code, 1, NAN)));
  }
  assert_true(std::isnan(real(OpCode::relu, NAN)));
  assert_true(real(OpCode::lt, NAN, 1) == 0 && real(OpCode::eq, NAN, NAN) == 0);
}

static void integers_wrap(void**) {
  assert_int_equal(integer(OpCode::add, INT32_MAX, 1), INT32_MIN);
  assert_int_equal(integer(OpCode::sub, INT32_MIN, 1), INT32_MAX);
  assert_int_equal(integer(OpCode::mul, 65536, 65537), 65536);
  assert_int_equal(integer(OpCode::neg, INT32_MIN), INT32_MIN);
  assert_int_equal(integer(OpCode::abs, INT32_MIN), INT32_MIN);
  assert_int_equal(integer(OpCode::square, 46341), -2147479015);
  assert_int_equal(integer(OpCode::max, -3, 2), 2);
  assert_int_equal(integer(OpCode::relu, -3), 0);
  assert_int_equal(integer(OpCode::where, 0, 5, 6), 6);
}

static void every_reduction_has_its_identity_and_keeps_nan(void**) {
  for (const OpInfo& op : all_ops()) {
    if (op.kind != OpKind::reduction) continue;
    auto both = [&](double x, double y) { return apply_combine(op.code, Real(x), Real(y)).v; };
    auto integers = [&](double x, double y) { return apply_combine(op.code, Int(x), Int(y)).v; };
    const double none = reduction_identity(op.code, DType::f32);
    for (double x : {-3.5, 0.0, 2.0, -HUGE_VAL, HUGE_VAL}) {
      assert_true(both(none, x) == x && both(x, none) == x);
      assert_true(std::isnan(both(x, NAN)) && std::isnan(both(NAN, x)));
    }
    const double no_integer = reduction_identity(op.code, DType::i32);
    for (double x : {double{INT32_MIN}, -7.0, 0.0, double{INT32_MAX}})
      assert_true(integers(no_integer, x) == x && integers(x, no_integer) == x);
  }
  assert_int_equal(apply_combine(OpCode::reduce_sum, Int(INT32_MAX), Int(1)).v, INT32_MIN);
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(real_values), cmocka_unit_test(not_a_number_goes_through),
                              cmocka_unit_test(integers_wrap),
                              cmocka_unit_test(every_reduction_has_its_identity_and_keeps_nan)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
