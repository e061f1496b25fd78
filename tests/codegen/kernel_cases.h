// Graphs that reach every kind of kernel and every path in them: teams of threads, split sums and products,
// tiles of all sizes, operands of all layouts, fused and shared kernels.
#pragma once

#include "tests/codegen/emulated.h"

namespace quern {

std::vector<EmulatedCase> row_cases();
std::vector<EmulatedCase> product_cases();
std::vector<EmulatedCase> movement_cases();

}  // namespace quern
