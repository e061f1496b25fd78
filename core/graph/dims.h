// Which dimensions of a graph's values are one and the same, because operators make them equal: every class
// is an index of the program.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/graph/graph.h"

namespace quern {

using DimClass = int;

// The dimensions of every value, with union-find over them.
class Dimensions {
 public:
  // Joins what the operators of the graph join. Broadcasts, reshapes that split or join, concats and partial
  // slices do not.
  explicit Dimensions(const Graph& graph);

  DimClass of(ValueId value, size_t dim) const {
    return find(first_[static_cast<size_t>(value)] + static_cast<int>(dim));
  }
  // Nothing when the extents differ: where one of them broadcasts, those are different dimensions.
  void join(ValueId a, size_t dim_a, ValueId b, size_t dim_b);
  int64_t extent(DimClass dim) const { return extent_[static_cast<size_t>(dim)]; }
  // Classes are numbers below this; not every number is one.
  size_t size() const { return parent_.size(); }
  bool is_class(DimClass dim) const { return parent_[static_cast<size_t>(dim)] == dim; }

 private:
  DimClass find(int dim) const {
    while (parent_[static_cast<size_t>(dim)] != dim) dim = parent_[static_cast<size_t>(dim)];
    return dim;
  }
  std::vector<int> first_;  // dimension 0 of each value
  std::vector<int> parent_;
  std::vector<int64_t> extent_;
};

// Whether a slice keeps all of a dimension.
bool is_whole(const Graph& graph, const Node& slice, size_t dim);
// Whether it keeps one of each `step` indices of a dimension, which are whole steps.
bool keeps_one_a_step(const Graph& graph, const Node& slice, size_t dim);

// Calls f(dimensions of the operand, dimensions of the result) for the smallest runs of equal product,
// leaving out extents of 1. A tensor without elements has none.
void for_each_reshape_group(const Graph& graph, const Node& reshape,
                            const std::function<void(const Ints&, const Ints&)>& f);

// Of a reshape that only adds or removes extents of 1: for each dimension of its result that of its operand, -1 where the extent
// is 1. Nothing of one that does more.
std::optional<std::vector<int>> renamed_dims(const Ints& from, const Ints& to);

}  // namespace quern
