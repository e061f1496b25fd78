// Many elements of a buffer at once, one behind the other: inputs have hundreds of millions.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/dtype.h"

namespace quern {

// store_element() of several values, from element `index` on.
void store_elements(void* data, DType dtype, int64_t index, std::span<const double> values);
// Whether `count` elements hold neither an infinity nor a NaN.
bool all_finite(const void* data, DType dtype, int64_t count);

}  // namespace quern
