#include "core/base/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/dtype_info.h"
#include "core/base/elements.h"
#include "core/base/status.h"

namespace quern {

namespace {

// Numbers find rows.
constexpr bool rows_have_their_numbers() {
  for (size_t i = 0; i < std::size(kDTypes); ++i)
    if (static_cast<size_t>(kDTypes[i].dtype) != i + 1) return false;
  return true;
}
static_assert(rows_have_their_numbers());

// Both for a row that is known at compile time, or not: inputs and references convert hundreds of millions of
// numbers.
inline uint32_t bits_of(const DTypeInfo& row, double value) {
  const int mantissa = row.mantissa;
  const uint32_t ones = (1u << row.exponent) - 1,
                 sign = std::signbit(value) ? 1u << (row.exponent + mantissa) : 0;
  const uint32_t infinity = ones << mantissa;
  if (std::isnan(value))
    return sign | infinity | (row.infinities ? 1u << (mantissa - 1) : (1u << mantissa) - 1);
  const uint32_t above =
      row.infinities ? infinity : infinity | ((1u << mantissa) - 2);  // of what is too large
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | above;
  if (magnitude == 0) return sign;
  const int own = static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023;
  const int exponent = std::max(own, row.least_exponent);
  // The unit in the last place is 2^(exponent - mantissa). Sums near 2^52 are whole, rounded to even in the
  // default mode.
  const double units = magnitude * power_of_two(mantissa - exponent) + 0x1p52 - 0x1p52;
  uint32_t bits = static_cast<uint32_t>(units);  // at most 2^(mantissa+1)
  // A normal number carries its leading bit into the exponent field by addition; a carry out of it is right
  // too.
  bits += static_cast<uint32_t>(exponent - row.least_exponent) << mantissa;
  return sign | std::min(bits, above);
}

inline double value_of(const DTypeInfo& row, uint32_t bits) {
  const uint32_t ones = (1u << row.exponent) - 1, exponent = bits >> row.mantissa & ones,
                 fraction = bits & ((1u << row.mantissa) - 1);
  double magnitude;
  if (exponent == ones && (row.infinities || fraction == (1u << row.mantissa) - 1))
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    magnitude = fraction * power_of_two(row.least_exponent - row.mantissa);
  else
    magnitude = (fraction + (1u << row.mantissa)) *
                power_of_two(static_cast<int>(exponent) - 1 + row.least_exponent - row.mantissa);
  return bits >> (row.exponent + row.mantissa) & 1 ? -magnitude : magnitude;
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

uint32_t narrow_bits(DType dtype, double value) { return bits_of(dtype_info(dtype), value); }
double narrow_value(DType dtype, uint32_t bits) { return value_of(dtype_info(dtype), bits); }

namespace {

int32_t to_integer(double value) {
  constexpr double low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  if (std::isnan(value)) return 0;
  return static_cast<int32_t>(std::clamp(value, low, high));
}

// What is in memory.
template <const DTypeInfo& kRow>
using Stored = std::conditional_t<kRow.kind == DTypeClass::wide, float,
                                  std::conditional_t<kRow.kind == DTypeClass::integer, int32_t,
                                                     std::conditional_t<kRow.bytes == 1, uint8_t, uint16_t>>>;

template <const DTypeInfo& kRow>
double load(const char* at) {
  Stored<kRow> stored;
  std::memcpy(&stored, at, sizeof stored);
  if constexpr (kRow.kind == DTypeClass::narrow) return value_of(kRow, stored);
  if constexpr (kRow.kind == DTypeClass::boolean) return stored != 0;
  return stored;
}

template <const DTypeInfo& kRow>
void store(char* at, double value) {
  Stored<kRow> stored;
  if constexpr (kRow.kind == DTypeClass::narrow)
    stored = static_cast<Stored<kRow>>(bits_of(kRow, value));
  else if constexpr (kRow.kind == DTypeClass::integer)
    stored = to_integer(value);
  else if constexpr (kRow.kind == DTypeClass::boolean)
    stored = value != 0;
  else
    stored = static_cast<float>(value);
  std::memcpy(at, &stored, sizeof stored);
}

}  // namespace

double load_element(const void* data, DType dtype, int64_t index) {
  const char* at = static_cast<const char*>(data) + index * static_cast<int64_t>(dtype_size(dtype));
  switch (dtype) {
#define QUERN_DTYPE(number, id, ...) \
  case DType::id:                    \
    return load<kDTypes[number - 1]>(at);
#include "core/base/dtype.def"
  }
  fatal(__FILE__, __LINE__, "no such dtype");
}

void store_element(void* data, DType dtype, int64_t index, double value) {
  char* at = static_cast<char*>(data) + index * static_cast<int64_t>(dtype_size(dtype));
  switch (dtype) {
#define QUERN_DTYPE(number, id, ...) \
  case DType::id:                    \
    return store<kDTypes[number - 1]>(at, value);
#include "core/base/dtype.def"
  }
}

void store_elements(void* data, DType dtype, int64_t index, std::span<const double> values) {
  const auto bytes = static_cast<int64_t>(dtype_size(dtype));
  char* at = static_cast<char*>(data) + index * bytes;
  switch (dtype) {
#define QUERN_DTYPE(number, id, ...)                                                      \
  case DType::id:                                                                         \
    for (const double value : values) store<kDTypes[number - 1]>(at, value), at += bytes; \
    return;
#include "core/base/dtype.def"
  }
}

bool all_finite(const void* data, DType dtype, int64_t count) {
  const auto bytes = static_cast<int64_t>(dtype_size(dtype));
  const char *at = static_cast<const char*>(data), *end = at + count * bytes;
  switch (dtype) {
#define QUERN_DTYPE(number, id, ...)                                   \
  case DType::id:                                                      \
    for (; at < end; at += bytes)                                      \
      if (!std::isfinite(load<kDTypes[number - 1]>(at))) return false; \
    return true;
#include "core/base/dtype.def"
  }
  fatal(__FILE__, __LINE__, "no such dtype");
}

double round_to(DType dtype, double value) {
  char element[4];
  store_element(element, dtype, 0, value);
  return load_element(element, dtype, 0);
}

}  // namespace quern
