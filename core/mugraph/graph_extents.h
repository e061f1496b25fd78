// The dimensions of one graph (the target, a block graph, a library operator) as variables of small instances.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "core/graph/dims.h"
#include "core/mugraph/extents.h"

namespace quern {

class GraphExtents {
  using Var = Extents::Var;

 public:
  GraphExtents(const Graph& graph, Dimensions dims, Extents::Role role, Extents& extents)
      : graph_(graph), dims_(std::move(dims)), vars_(dims_.size(), -1), extents_(extents) {
    for (size_t dim = 0; dim < dims_.size(); ++dim)
      if (dims_.is_class(static_cast<DimClass>(dim)))
        vars_[dim] = extents.add(dims_.extent(static_cast<DimClass>(dim)), role);
    for (const Node& node : graph_.nodes) relate(node, static_cast<ValueId>(&node - graph_.nodes.data()));
  }

  // Of an iota or a concatenation.
  Var axis(ValueId id) const { return var(id, static_cast<size_t>(graph_.node(id).attrs.axis->front())); }
  Var var(ValueId value, size_t dim) const { return vars_[static_cast<size_t>(dims_.of(value, dim))]; }

  Ints shape(ValueId id) const;
  // Where operators sum.
  void prefer_sums(int64_t terms) const;
  // Along which iotas count.
  void collect_counted(std::set<Var>& counted) const;
  // Positions at which slices cut a variable, and concatenations one that is counted.
  void collect_cuts(const std::set<Var>& counted, std::map<Var, std::set<int64_t>>& cuts) const;

 private:
  void relate(const Node& node, ValueId id);
  void relate_slice(const Node& slice, ValueId id, size_t d);

  const Graph& graph_;
  Dimensions dims_;
  std::vector<Var> vars_;  // by class
  Extents& extents_;
};

}  // namespace quern
