// Conversions between element types, over all 65536 half values and around every boundary between them.
#include "core/base/dtype.h"

#include <bit>
#include <cmath>

#include "tests/support/test.h"

using namespace quern;

static void every_half_survives(void**) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float f = f16_to_float(half), b = bf16_to_float(half);
    if (std::isnan(f))
      assert_true((f16_from_float(f) & 0x7c00) == 0x7c00 && (f16_from_float(f) & 0x3ff));
    else
      assert_int_equal(f16_from_float(f), half);
    if (std::isnan(b))
      assert_true((bf16_from_float(b) & 0x7f80) == 0x7f80 && (bf16_from_float(b) & 0x7f));
    else
      assert_int_equal(bf16_from_float(b), half);
  }
}

// Between neighbours: below the middle goes down, above goes up, the middle to the even one.
template <class Down, class Up>
static void check_between(uint16_t low, Down from_double, Up to_float) {
  const double a = to_float(low), b = to_float(static_cast<uint16_t>(low + 1));
  const double middle = (a + b) / 2;
  assert_int_equal(from_double(std::nextafter(middle, a)), low);
  assert_int_equal(from_double(std::nextafter(middle, b)), low + 1);
  assert_int_equal(from_double(middle), low % 2 == 0 ? low : low + 1);
  assert_int_equal(from_double(-middle), 0x8000 | (low % 2 == 0 ? low : low + 1));
}

static void rounds_to_nearest_even(void**) {
  for (uint16_t low = 0; low < 0x7bff; ++low) check_between(low, f16_from_double, f16_to_float);
  for (uint16_t low = 0; low < 0x7f7f; ++low) check_between(low, bf16_from_double, bf16_to_float);
}

static void overflow_is_infinite(void**) {
  assert_int_equal(f16_from_double(65519.99), 0x7bff);
  assert_int_equal(f16_from_double(65520.0), 0x7c00);
  assert_int_equal(f16_from_double(-1e300), 0xfc00);
  assert_int_equal(f16_from_double(INFINITY), 0x7c00);
  assert_int_equal(bf16_from_double(1e39), 0x7f80);
  assert_int_equal(bf16_from_double(-INFINITY), 0xff80);
  assert_int_equal(f16_from_double(1e-30), 0);
  assert_int_equal(f16_from_double(-1e-30), 0x8000);
}

static void one_rounding_only(void**) {
  // 1 + 2^-11 + 2^-30 is above the middle; rounded to f32 first it would be the middle, and go to even.
  assert_int_equal(f16_from_double(1 + 0x1p-11 + 0x1p-30), 0x3c01);
}

static void integers_and_truth_values(void**) {
  assert_true(round_to(DType::i32, 2.9) == 2 && round_to(DType::i32, -2.9) == -2);
  assert_true(round_to(DType::i32, 1e20) == INT32_MAX && round_to(DType::i32, -1e20) == INT32_MIN);
  assert_true(round_to(DType::i32, NAN) == 0);
  assert_true(round_to(DType::boolean, 0.25) == 1 && round_to(DType::boolean, 0) == 0);
}

static void names_parse(void**) {
  for (DType dtype : kAllDTypes) assert_true(parse_dtype(dtype_name(dtype)) == dtype);
  assert_false(parse_dtype("f64").has_value());
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_half_survives),       cmocka_unit_test(rounds_to_nearest_even),
      cmocka_unit_test(overflow_is_infinite),      cmocka_unit_test(one_rounding_only),
      cmocka_unit_test(integers_and_truth_values), cmocka_unit_test(names_parse),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
