// What a stage of a block does, as a list of steps, and the shared memory that some steps write for others to
// read. Steps are texts; how they depend on each other is seen from the variables that they name. Barriers
// and the places of shared memory are no part of the steps: core/schedule's plans decide on them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/schedule/operator_order.h"

namespace quern {

struct BlockStep {
  std::string text;
  // Numbers of shared buffers: what is written here is there for other steps after a barrier. A step that
  // does both keeps to the warp and waits for it by itself.
  std::vector<int> writes = {}, reads = {};
  // Written here for other blocks of a cluster, theirs to read until the end.
  std::vector<int> publishes = {};
  // Keeps its place among all steps, for an order that variables do not show.
  bool in_place = false;
};

class StepList {
 public:
  // A step that no other thread takes part in.
  StepList& operator+=(std::string text);
  void add(BlockStep step) { steps_.push_back(std::move(step)); }
  void insert(size_t at, BlockStep step) {
    steps_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(at), std::move(step));
  }
  size_t size() const { return steps_.size(); }

  bool writes_shared() const;
  // Some step reads what another has written.
  bool has_exchanges() const;
  // Steps that name the same of `variables` keep their order. `bytes` are those of all shared buffers; each
  // is written once and read in the same list, then or later.
  OrderProblem order_problem(const std::set<std::string>& variables, const std::vector<int64_t>& bytes) const;
  // The first level at which a buffer is written and the last at which it is read (of one that is published,
  // the last of all); nothing of other lists.
  struct Span {
    int buffer, first, last;
  };
  std::vector<Span> spans(const OrderPlan& plan) const;
  // Steps in this order, the barrier's text where a level begins.
  std::string text(const OrderPlan& plan, const std::string& barrier) const;

 private:
  std::vector<BlockStep> steps_;
};

// Words of letters, digits and _ that stand in a text and in `among`.
std::set<std::string> words_of(const std::string& text, const std::set<std::string>& among);

}  // namespace quern
