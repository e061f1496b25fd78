// What products compute, and by what: two kernels that compute the same scores have the same bits only if instructions and the
// order of sums are the same. A kernel that is handed the maxima of scores, and computes these again, is right only then: of
// two scores that round differently, the exponential of their difference is anything.
#pragma once

#include <map>

#include "core/codegen/block/product_plans.h"

namespace quern {

// By what is computed, of tensors by number: by which instruction, and among how many warps the sums are parted.
using ComputedProducts = std::map<std::string, std::string>;
ComputedProducts computed_products(const BlockProgram& program, const ProductPlans& plans);

}  // namespace quern
