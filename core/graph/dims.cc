#include "core/graph/dims.h"

#include <algorithm>

namespace quern {

namespace {

// Joins the dimensions that one graph's operators make equal.
class Joiner {
 public:
  Joiner(const Graph& graph, Dimensions& dims) : graph_(graph), dims_(dims) {}

  void join(ValueId id) {
    const Node& op = node(id);
    if (op_info(op.code).kind == OpKind::leaf || op.operands.empty()) return;
    const ValueId x = op.operands[0];
    const Ints axes = op.attrs.axis.value_or(Ints());
    auto is_axis = [&](size_t dim) {
      return std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(dim));
    };
    if (op.attrs.keepdims) {
      for (size_t dim = 0, to = 0; dim < rank(x); ++dim) {
        if (!is_axis(dim)) dims_.join(x, dim, id, to);
        if (!is_axis(dim) || *op.attrs.keepdims) ++to;
      }
      return;
    }
    switch (op.code) {
      case OpCode::matmul:
        return join_matmul(id);
      case OpCode::rms_norm:
      case OpCode::layer_norm:
        for (size_t i = 1; i < op.operands.size(); ++i)
          for (size_t a = 0; a < axes.size(); ++a)
            dims_.join(op.operands[i], a, x, static_cast<size_t>(axes[a]));
        return join_broadcast(x, rank(x), id, rank(id));
      case OpCode::transpose:
        for (size_t dim = 0; dim < rank(id); ++dim)
          dims_.join(id, dim, x, static_cast<size_t>((*op.attrs.perm)[dim]));
        return;
      case OpCode::concat:
        for (ValueId operand : op.operands)
          for (size_t dim = 0; dim < rank(id); ++dim)
            if (!is_axis(dim)) dims_.join(operand, dim, id, dim);
        return;
      case OpCode::slice:
        for (size_t dim = 0; dim < rank(id); ++dim)
          if (is_whole(graph_, op, dim)) dims_.join(x, dim, id, dim);
        return;
      case OpCode::reshape:
        return for_each_reshape_group(graph_, op, [&](const Ints& from, const Ints& to) {
          if (from.size() == 1 && to.size() == 1)
            dims_.join(x, static_cast<size_t>(from[0]), id, static_cast<size_t>(to[0]));
        });
      default:
        for (ValueId operand : op.operands) join_broadcast(operand, rank(operand), id, rank(id));
    }
  }

 private:
  const Node& node(ValueId id) const { return graph_.node(id); }
  size_t rank(ValueId id) const { return node(id).type.shape.size(); }

  // Aligned at the last dimension, as broadcasting does.
  void join_broadcast(ValueId operand, size_t operand_rank, ValueId result, size_t result_rank) {
    for (size_t i = 0; i < operand_rank && i < result_rank; ++i)
      dims_.join(operand, operand_rank - 1 - i, result, result_rank - 1 - i);
  }

  void join_matmul(ValueId id) {
    const ValueId a = node(id).operands[0], b = node(id).operands[1];
    const bool row = rank(a) == 1, column = rank(b) == 1;
    dims_.join(a, rank(a) - 1, b, column ? 0 : rank(b) - 2);
    const size_t batch = rank(id) - !row - !column;
    if (!row) dims_.join(a, rank(a) - 2, id, batch);
    if (!column) dims_.join(b, rank(b) - 1, id, rank(id) - 1);
    if (!row) join_broadcast(a, rank(a) - 2, id, batch);
    if (!column) join_broadcast(b, rank(b) - 2, id, batch);
  }

  const Graph& graph_;
  Dimensions& dims_;
};

}  // namespace

Dimensions::Dimensions(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    first_.push_back(static_cast<int>(parent_.size()));
    for (int64_t extent : node.type.shape) {
      parent_.push_back(static_cast<int>(parent_.size()));
      extent_.push_back(extent);
    }
  }
  Joiner joiner(graph, *this);
  for (size_t id = 0; id < graph.nodes.size(); ++id) joiner.join(static_cast<ValueId>(id));
}

void Dimensions::join(ValueId a, size_t dim_a, ValueId b, size_t dim_b) {
  const DimClass x = of(a, dim_a), y = of(b, dim_b);
  if (extent(x) == extent(y)) parent_[static_cast<size_t>(std::max(x, y))] = std::min(x, y);
}

bool is_whole(const Graph& graph, const Node& slice, size_t dim) {
  const int64_t extent = graph.node(slice.operands[0]).type.shape[dim];
  return (*slice.attrs.start)[dim] == 0 && (*slice.attrs.stop)[dim] == extent &&
         (*slice.attrs.step)[dim] == 1;
}

bool keeps_one_a_step(const Graph& graph, const Node& slice, size_t dim) {
  const int64_t step = (*slice.attrs.step)[dim];
  return step > 1 && (*slice.attrs.start)[dim] < step &&
         graph.node(slice.operands[0]).type.shape[dim] == step * slice.type.shape[dim];
}

void for_each_reshape_group(const Graph& graph, const Node& reshape,
                            const std::function<void(const Ints&, const Ints&)>& f) {
  const Ints& from = graph.node(reshape.operands[0]).type.shape;
  const Ints& to = reshape.type.shape;
  if (reshape.type.element_count() == 0) return;
  Ints from_group, to_group;
  int64_t from_product = 1, to_product = 1;
  for (size_t i = 0, j = 0; i < from.size() || j < to.size();) {
    if (i < from.size() && (from_product <= to_product || j == to.size())) {
      from_product *= from[i];
      if (from[i] != 1) from_group.push_back(static_cast<int64_t>(i));
      ++i;
    } else {
      to_product *= to[j];
      if (to[j] != 1) to_group.push_back(static_cast<int64_t>(j));
      ++j;
    }
    if (from_product != to_product || from_group.empty() || to_group.empty()) continue;
    f(from_group, to_group);
    from_group.clear(), to_group.clear();
    from_product = to_product = 1;
  }
}

std::optional<std::vector<int>> renamed_dims(const Ints& from, const Ints& to) {
  std::vector<int> dims;
  size_t at = 0;
  auto skip_units = [&] {
    while (at < from.size() && from[at] == 1) ++at;
  };
  for (int64_t extent : to) {
    if (extent == 1) {
      dims.push_back(-1);
      continue;
    }
    skip_units();
    if (at == from.size() || from[at] != extent) return std::nullopt;
    dims.push_back(static_cast<int>(at++));
  }
  skip_units();
  return at == from.size() ? std::optional(dims) : std::nullopt;
}

}  // namespace quern
