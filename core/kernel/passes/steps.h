// What a block does before its loop, in an iteration or after the loop, as a list of steps, and the shared
// memory that some steps write for others to read. How steps depend on each other is seen from their effects
// (core/kernel/effects.h). Barriers and the places of shared memory are no part of the steps: passes decide
// on them.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "core/kernel/ir.h"
#include "core/schedule/operator_order.h"

namespace quern::ir {

// Shared memory that some step writes for others.
struct SharedBuffer {
  enum class Use : uint8_t {
    exchange,      // what one step writes is there for other steps after a barrier
    published,     // for other blocks of the cluster, theirs to read until the end
    loop_carried,  // one iteration writes what a later one, or the end, reads
    kept,          // written in front of the loop, behind a barrier of its writer's, for all of it
  };
  Symbol symbol;
  int64_t bytes = 0, alignment = 16;
  Use use = Use::exchange;
  // When it is needed (moments of order_steps; -1: never) and where it lies (plan_shared_memory).
  int first = -1, last = -1;
  int64_t offset = -1;
};

struct Step {
  Body body;
  // Keeps its place among all steps, for an order that registers do not show.
  bool in_place = false;
};

class StepList {
 public:
  // A step that no other thread takes part in, or one with barriers of its own.
  StepList& operator+=(Body body);
  void add(Step step) { steps_.push_back(std::move(step)); }
  void insert(size_t at, Step step) {
    steps_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(at), std::move(step));
  }
  size_t size() const { return steps_.size(); }
  const std::vector<Step>& all() const { return steps_; }

  bool writes_shared(const std::vector<SharedBuffer>& buffers) const;
  // Some step reads what another has written.
  bool has_exchanges(const std::vector<SharedBuffer>& buffers) const;
  // Every step reads what it has written itself, and nothing else.
  bool keeps_within_warps(const std::vector<SharedBuffer>& buffers) const;
  // Steps that name the same registers keep their order. Each buffer is written once and read in the same
  // list, then or later.
  OrderProblem order_problem(const std::vector<SharedBuffer>& buffers) const;
  // The first level at which a buffer is written and the last at which it is read (of one that is published,
  // the last of all); nothing of other lists.
  struct Span {
    int buffer, first, last;
  };
  std::vector<Span> spans(const std::vector<SharedBuffer>& buffers, const OrderPlan& plan) const;
  // Steps in this order, the barrier where a level begins.
  Body body(const OrderPlan& plan, const Stmt& barrier) const;

 private:
  // Numbers of buffers. A step that both reads and writes one keeps to the warp and waits for it by itself.
  struct Touched {
    std::set<int> writes, reads, publishes;
  };
  std::vector<Touched> touched(const std::vector<SharedBuffer>& buffers) const;

  std::vector<Step> steps_;
};

}  // namespace quern::ir
