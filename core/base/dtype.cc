#include "core/base/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/dtype_info.h"
#include "core/base/status.h"

namespace quern {

namespace {

// The rows are in the order of the numbers, so that numbers find them.
constexpr bool rows_have_their_numbers() {
  for (size_t i = 0; i < std::size(kDTypes); ++i)
    if (kDTypes[i].dtype != kAllDTypes[i] || static_cast<size_t>(kAllDTypes[i]) != i + 1) return false;
  return std::size(kDTypes) == std::size(kAllDTypes);
}
static_assert(rows_have_their_numbers());

// Rounds to a binary float of `mantissa` stored bits and exponent range [min_exponent, max_exponent] (of the
// leading bit), to nearest even, and returns its bits without the sign.
uint16_t round_magnitude(double magnitude, int mantissa, int min_exponent, int max_exponent) {
  const int bias = max_exponent;
  if (std::isinf(magnitude)) return static_cast<uint16_t>((2 * bias + 1) << mantissa);
  if (magnitude == 0) return 0;
  // By bits: inputs and references round hundreds of millions of numbers.
  const int own = static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023;
  const int exponent = std::max(own, min_exponent);
  // The unit in the last place is 2^(exponent - mantissa).
  const double unit_inverse = std::bit_cast<double>(static_cast<uint64_t>(mantissa - exponent + 1023) << 52);
  // Sums near 2^52 are whole, rounded to even in the default mode.
  const double units = magnitude * unit_inverse + 0x1p52 - 0x1p52;
  uint32_t bits = static_cast<uint32_t>(units);  // at most 2^(mantissa+1)
  // A normal number carries its leading bit into the exponent field by addition; a carry out of it is right
  // too.
  bits += static_cast<uint32_t>(exponent + bias - 1) << mantissa;
  const uint32_t infinity = static_cast<uint32_t>(2 * bias + 1) << mantissa;
  return static_cast<uint16_t>(std::min(bits, infinity));
}

uint16_t round_half(double value, int mantissa, int min_exponent, int max_exponent, uint16_t nan) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | nan;
  return sign | round_magnitude(std::fabs(value), mantissa, min_exponent, max_exponent);
}

}  // namespace

const char* dtype_name(DType dtype) { return is_valid(dtype) ? dtype_info(dtype).name : "?"; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeInfo& row : kDTypes)
    if (name == row.name) return row.dtype;
  return std::nullopt;
}

size_t dtype_size(DType dtype) {
  check(is_valid(dtype), "no such dtype");
  return dtype_info(dtype).bytes;
}

uint16_t f16_from_double(double value) { return round_half(value, 10, -14, 15, 0x7e00); }
uint16_t bf16_from_double(double value) { return round_half(value, 7, -126, 127, 0x7fc0); }
uint16_t f16_from_float(float value) { return f16_from_double(value); }
uint16_t bf16_from_float(float value) { return bf16_from_double(value); }

float f16_to_float(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  float magnitude;
  if (exponent == 31)
    magnitude = mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  else
    magnitude = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

namespace {

// One of each class of dtype: `at` is where the element is.
template <class Bits>
Bits load_bits(const char* at) {
  Bits bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
template <class Bits>
void store_bits(char* at, Bits bits) {
  std::memcpy(at, &bits, sizeof bits);
}

int32_t to_integer(double value) {
  constexpr double low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  if (std::isnan(value)) return 0;
  return static_cast<int32_t>(std::clamp(value, low, high));
}

#define QUERN_LOAD_narrow(id) id##_to_float(load_bits<decltype(id##_from_double(0))>(at))
#define QUERN_LOAD_wide(id) load_bits<float>(at)
#define QUERN_LOAD_integer(id) load_bits<int32_t>(at)
#define QUERN_LOAD_boolean(id) *at != 0
#define QUERN_STORE_narrow(id) store_bits(at, id##_from_double(value))
#define QUERN_STORE_wide(id) store_bits(at, static_cast<float>(value))
#define QUERN_STORE_integer(id) store_bits(at, to_integer(value))
#define QUERN_STORE_boolean(id) store_bits<char>(at, value != 0)

}  // namespace

double load_element(const void* data, DType dtype, int64_t index) {
  const char* at = static_cast<const char*>(data) + index * static_cast<int64_t>(dtype_size(dtype));
  switch (dtype) {
#define QUERN_DTYPE(id, name, bytes, kind, ...) \
  case DType::id:                               \
    return QUERN_LOAD_##kind(id);
#include "core/base/dtype.def"
  }
  fatal(__FILE__, __LINE__, "no such dtype");
}

void store_element(void* data, DType dtype, int64_t index, double value) {
  char* at = static_cast<char*>(data) + index * static_cast<int64_t>(dtype_size(dtype));
  switch (dtype) {
#define QUERN_DTYPE(id, name, bytes, kind, ...) \
  case DType::id:                               \
    return QUERN_STORE_##kind(id);
#include "core/base/dtype.def"
  }
}

double round_to(DType dtype, double value) {
  char element[4];
  store_element(element, dtype, 0, value);
  return load_element(element, dtype, 0);
}

}  // namespace quern
