// The three choices of a block by trying everything, and small random problems to try it on.
#pragma once

#include <random>

#include "core/schedule/layout_choice.h"
#include "core/schedule/memory_plan.h"
#include "core/schedule/operator_order.h"

namespace quern {

int64_t least_peak(const std::vector<MemoryBuffer>& buffers);
OrderCost least_order(const OrderProblem& problem);
int64_t least_layouts(const LayoutProblem& problem);

std::vector<MemoryBuffer> random_buffers(std::mt19937_64& random, int count);
OrderProblem random_order(std::mt19937_64& random, int steps);
LayoutProblem random_layouts(std::mt19937_64& random, int tensors);

}  // namespace quern
