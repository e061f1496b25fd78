// The rows of dtype.def: what code asks instead of comparing dtypes or their sizes.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>

#include "core/base/dtype.h"

namespace quern {

enum class DTypeClass : uint8_t { narrow, wide, integer, boolean };

struct DTypeInfo {
  DType dtype;
  const char* name;
  size_t bytes;
  DTypeClass kind;
  int mantissa, least_exponent;
  double largest;
  const char* tensor_cores;  // null: none
  int packed;
  bool wgmma;
};

inline constexpr DTypeInfo kDTypes[] = {
#define QUERN_DTYPE(id, name, bytes, kind, mantissa, least, largest, tensor_cores, packed, wgmma) \
  {DType::id, name, bytes, DTypeClass::kind, mantissa, least, largest, tensor_cores, packed, wgmma},
#include "core/base/dtype.def"
};

// Of a valid dtype.
constexpr const DTypeInfo& dtype_info(DType dtype) { return kDTypes[static_cast<size_t>(dtype) - 1]; }

// A float of which registers hold the f32: what is stored is rounded.
constexpr bool is_narrow(DType dtype) { return dtype_info(dtype).kind == DTypeClass::narrow; }
// Two elements share a word of registers, as ldmatrix and mma have them.
constexpr bool is_packed_in_pairs(DType dtype) { return dtype_info(dtype).packed == 2; }

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
