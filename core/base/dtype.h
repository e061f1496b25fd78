// Element types, their text names, and the conversions of the narrow floats on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace quern {

enum class DType : uint8_t {
#define QUERN_DTYPE(number, id, ...) id = number,
#include "core/base/dtype.def"
};
inline constexpr DType kAllDTypes[] = {
#define QUERN_DTYPE(number, id, ...) DType::id,
#include "core/base/dtype.def"
};

const char* dtype_name(DType dtype);  // "f16", ..., "bool"
std::optional<DType> parse_dtype(std::string_view name);
size_t dtype_size(DType dtype);  // bytes an element; a bool is one byte, 0 or 1
inline bool is_valid(DType dtype) { return static_cast<size_t>(dtype) - 1 < std::size(kAllDTypes); }

// narrow: a float of which registers hold the f32; wide: f32.
enum class DTypeClass : uint8_t { narrow, wide, integer, boolean };
inline constexpr DTypeClass kDTypeClasses[] = {
#define QUERN_DTYPE(number, id, name, type, bytes, kind, ...) DTypeClass::kind,
#include "core/base/dtype.def"
};
constexpr bool is_float(DType dtype) {
  return kDTypeClasses[static_cast<size_t>(dtype) - 1] <= DTypeClass::wide;
}

// The bits of a narrow float: IEEE round to nearest even, in one rounding; overflow gives infinity, where there
// are infinities, else the largest number; NaN stays NaN.
uint32_t narrow_bits(DType dtype, double value);
double narrow_value(DType dtype, uint32_t bits);

// Element `index` of an array of `dtype` as a double, exactly.
double load_element(const void* data, DType dtype, int64_t index);
// Rounds `value` once to `dtype` and stores it. To i32: towards zero, saturating, NaN to 0. To bool: value !=
// 0.
void store_element(void* data, DType dtype, int64_t index, double value);
// What store_element followed by load_element gives.
double round_to(DType dtype, double value);

}  // namespace quern
