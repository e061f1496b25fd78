// The rows of dtype.def: what code asks instead of comparing dtypes or their sizes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>

#include "core/base/dtype.h"

namespace quern {

struct DTypeInfo {
  DType dtype;
  const char* name;
  const char* type;  // in CUDA
  size_t bytes;
  DTypeClass kind;
  int exponent, mantissa;
  bool infinities;
  const char* tensor_cores;  // null: none
  int packed;
  bool wgmma;
  int least_exponent = 0;  // of a normal number
  double largest = 0;      // finite
};

constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}
// The same with what follows from its bits.
constexpr DTypeInfo completed(DTypeInfo row) {
  if (row.exponent == 0) {
    row.largest = power_of_two(row.mantissa) - 1;
    return row;
  }
  const int bias = (1 << (row.exponent - 1)) - 1;
  row.least_exponent = 1 - bias;
  row.largest = row.infinities ? power_of_two(bias + 1) - power_of_two(bias - row.mantissa)
                               : power_of_two(bias + 2) - power_of_two(bias + 2 - row.mantissa);
  return row;
}

inline constexpr DTypeInfo kDTypes[] = {
#define QUERN_DTYPE(number, id, name, type, bytes, kind, ...) \
  completed({DType::id, name, type, bytes, DTypeClass::kind, __VA_ARGS__}),
#include "core/base/dtype.def"
};

// Of a valid dtype.
constexpr const DTypeInfo& dtype_info(DType dtype) { return kDTypes[static_cast<size_t>(dtype) - 1]; }

// A float of which registers hold the f32: what is stored is rounded.
constexpr bool is_narrow(DType dtype) { return dtype_info(dtype).kind == DTypeClass::narrow; }
// A narrow float whose products are finite in f32.
constexpr bool has_finite_products(DType dtype) {
  return is_narrow(dtype) &&
         dtype_info(dtype).largest * dtype_info(dtype).largest < dtype_info(DType::f32).largest;
}
// Two elements share a word of registers, as ldmatrix and mma have them.
constexpr bool is_packed_in_pairs(DType dtype) { return dtype_info(dtype).packed == 2; }
// What rounding to a float dtype moves a number by at most: relative to it, and where it is subnormal.
constexpr double relative_rounding(DType dtype) { return power_of_two(-1 - dtype_info(dtype).mantissa); }
constexpr double least_rounding(DType dtype) {
  return power_of_two(dtype_info(dtype).least_exponent - dtype_info(dtype).mantissa - 1);
}

// All of these.
inline constexpr auto kNarrowDTypes = [] {
  constexpr auto is = [](const DTypeInfo& row) { return row.kind == DTypeClass::narrow; };
  std::array<DType, std::count_if(std::begin(kDTypes), std::end(kDTypes), is)> out{};
  size_t next = 0;
  for (const DTypeInfo& row : kDTypes)
    if (is(row)) out[next++] = row.dtype;
  return out;
}();

}  // namespace quern
