// The order of a block's steps with the fewest barriers. Steps that exchange through shared memory wait for
// each other at a barrier; those that are ready together can share one.
//
// Every step gets a level: the barriers that come before it. Steps of a level keep the order of the list. The
// fewest barriers are the longest path of waits (as in Mirage, OSDI'25, section 6: the depth of an operator);
// of all orders with so few, one is wanted that holds the least shared memory at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace quern {

// Step `to` comes after `from`, which stands before it in the list; with a barrier between them if `barrier`.
struct OrderEdge {
  int from, to;
  bool barrier;
};

// Shared memory that one step writes and another reads: taken at the levels of both and between.
struct OrderBuffer {
  int writer, reader;
  int64_t bytes;
};

struct OrderProblem {
  int steps = 0;
  std::vector<OrderEdge> edges;
  std::vector<OrderBuffer> buffers;
};

struct OrderCost {
  int barriers = 0;
  int64_t bytes = 0;  // at the level that has most
  auto operator<=>(const OrderCost&) const = default;
};

struct OrderPlan {
  std::vector<int> levels;  // one per step
  OrderCost cost;

  // Step numbers as they follow each other.
  std::vector<int> order() const;
};

// The list as it is, with a barrier wherever the next step needs one.
OrderPlan order_as_listed(const OrderProblem& problem);
// Every step as early as it can be: as few barriers as possible, whatever the memory.
OrderPlan order_by_depth(const OrderProblem& problem);
// The better of the two.
OrderPlan order_steps(const OrderProblem& problem);
// The fewest barriers, and the most bytes that one level must hold: no order costs less.
OrderCost order_bound(const OrderProblem& problem);
// INVALID_ARGUMENT names the steps that the levels do not keep in order.
Result<OrderCost> order_cost(const OrderProblem& problem, std::span<const int> levels);

}  // namespace quern
