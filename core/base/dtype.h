// Element types, their text names, and the conversions of the 16-bit floats on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quern {

// The values are stored and sent: never change or reuse one.
enum class DType : uint8_t { f16 = 1, bf16 = 2, f32 = 3, i32 = 4, boolean = 5 };
inline constexpr DType kAllDTypes[] = {DType::f16, DType::bf16, DType::f32, DType::i32, DType::boolean};

const char* dtype_name(DType dtype);  // "f16", ..., "bool"
std::optional<DType> parse_dtype(std::string_view name);
size_t dtype_size(DType dtype);  // bytes an element; a bool is one byte, 0 or 1
inline bool is_valid(DType dtype) { return dtype >= DType::f16 && dtype <= DType::boolean; }
inline bool is_float(DType dtype) { return dtype <= DType::f32; }

// IEEE round to nearest even; overflow gives infinity, NaN stays NaN.
uint16_t f16_from_float(float value);
uint16_t bf16_from_float(float value);
// From f64 in one rounding (going through f32 would round twice).
uint16_t f16_from_double(double value);
uint16_t bf16_from_double(double value);
float f16_to_float(uint16_t bits);
float bf16_to_float(uint16_t bits);

// Element `index` of an array of `dtype` as a double, exactly.
double load_element(const void* data, DType dtype, int64_t index);
// Rounds `value` once to `dtype` and stores it. To i32: towards zero, saturating, NaN to 0. To bool: value !=
// 0.
void store_element(void* data, DType dtype, int64_t index, double value);
// What store_element followed by load_element gives.
double round_to(DType dtype, double value);

}  // namespace quern
