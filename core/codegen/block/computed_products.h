// What the products of a kernel compute, and by which instruction: two kernels that compute the same scores have the same bits
// only if the instruction and the order of sums are the same. A kernel that is given the maxima of scores, and computes the
// scores again, is right only then: exp(score - maximum) of scores that round differently can be any number, where scores are large.
#pragma once

#include <map>

#include "core/base/hash.h"
#include "core/codegen/block/product_plans.h"

namespace quern {

// By a hash of what is computed, as an expression over tensors: how, for people too.
using ComputedProducts = std::map<Hash128, std::string>;
ComputedProducts computed_products(const BlockProgram& program, const ProductPlans& plans);

}  // namespace quern
