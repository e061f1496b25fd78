// Conversions between element types, over all values of narrow ones and around every boundary between them.
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/dtype_info.h"
#include "core/base/elements.h"
#include "tests/support/test.h"

using namespace quern;

static void every_narrow_number_survives(void**) {
  for (DType dtype : kNarrowDTypes)
    for (uint32_t bits = 0; bits < 1u << (8 * dtype_size(dtype)); ++bits) {
      const double value = narrow_value(dtype, bits);
      if (std::isnan(value))
        assert_true(std::isnan(narrow_value(dtype, narrow_bits(dtype, value))));
      else
        assert_int_equal(narrow_bits(dtype, value), bits);
      assert_true(!std::isfinite(value) || std::fabs(value) <= dtype_info(dtype).largest);
    }
}

static void known_numbers(void**) {
  assert_true(dtype_info(DType::f16).largest == 65504 && dtype_info(DType::f16).least_exponent == -14);
  assert_true(dtype_info(DType::bf16).largest == 0x1.fep127 &&
              dtype_info(DType::bf16).least_exponent == -126);
  assert_true(dtype_info(DType::f32).largest == std::numeric_limits<float>::max());
  assert_true(dtype_info(DType::i32).largest == INT32_MAX && dtype_info(DType::boolean).largest == 1);
  assert_true(narrow_value(DType::f16, 0x3c00) == 1 && narrow_value(DType::f16, 1) == 0x1p-24);
  assert_true(narrow_value(DType::bf16, 0x3f80) == 1 && narrow_value(DType::bf16, 0x4049) == 3.140625);
  assert_int_equal(narrow_bits(DType::f16, NAN), 0x7e00);
  assert_int_equal(narrow_bits(DType::bf16, NAN), 0x7fc0);
}

// Between neighbours: below the middle goes down, above goes up, the middle to the even one.
static void check_between(DType dtype, uint32_t low) {
  const double a = narrow_value(dtype, low), b = narrow_value(dtype, low + 1);
  const double middle = (a + b) / 2;
  const uint32_t even = low % 2 == 0 ? low : low + 1, sign = 1u << (8 * dtype_size(dtype) - 1);
  assert_int_equal(narrow_bits(dtype, std::nextafter(middle, a)), low);
  assert_int_equal(narrow_bits(dtype, std::nextafter(middle, b)), low + 1);
  assert_int_equal(narrow_bits(dtype, middle), even);
  assert_int_equal(narrow_bits(dtype, -middle), sign | even);
}

static void rounds_to_nearest_even(void**) {
  for (DType dtype : kNarrowDTypes)
    for (uint32_t low = 0; low < narrow_bits(dtype, dtype_info(dtype).largest); ++low)
      check_between(dtype, low);
}

static uint32_t f16_from_double(double value) { return narrow_bits(DType::f16, value); }
static uint32_t bf16_from_double(double value) { return narrow_bits(DType::bf16, value); }

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

static void several_elements_are_as_one_by_one(void**) {
  const std::vector<double> values = {0, -1, 0.3, 65519, 65520, -1e39, 1e-8, INFINITY, -INFINITY, NAN, 7.5};
  for (DType dtype : kAllDTypes) {
    std::string together(dtype_size(dtype) * (values.size() + 2), '\x5a'), alone = together;
    store_elements(together.data(), dtype, 1, values);
    for (size_t i = 0; i < values.size(); ++i)
      store_element(alone.data(), dtype, static_cast<int64_t>(i + 1), values[i]);
    assert_true(together == alone);
  }
}

static void what_is_not_finite_is_found_wherever_it_stands(void**) {
  constexpr int64_t kCount = 9;
  for (DType dtype : kAllDTypes)
    for (int64_t at = 0; at < kCount; ++at)
      for (const double value : {double{INFINITY}, double{NAN}, 448.0}) {
        std::string buffer(dtype_size(dtype) * kCount, '\0');
        assert_true(all_finite(buffer.data(), dtype, kCount));
        store_element(buffer.data(), dtype, at, value);
        assert_true(all_finite(buffer.data(), dtype, kCount) == std::isfinite(round_to(dtype, value)));
        assert_true(all_finite(buffer.data(), dtype, at));
      }
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_narrow_number_survives),
      cmocka_unit_test(known_numbers),
      cmocka_unit_test(rounds_to_nearest_even),
      cmocka_unit_test(overflow_is_infinite),
      cmocka_unit_test(one_rounding_only),
      cmocka_unit_test(integers_and_truth_values),
      cmocka_unit_test(several_elements_are_as_one_by_one),
      cmocka_unit_test(what_is_not_finite_is_found_wherever_it_stands),
      cmocka_unit_test(names_parse),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
