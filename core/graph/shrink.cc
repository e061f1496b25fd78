// The dimensions of all values are joined into classes by the operators' shape rules. A class gets a new
// extent; then the graph is built again with them. Where an operator does not fit, its classes are pinned to
// their old extents and all is tried again: in the worst case everything is pinned, which is the old graph,
// so this ends.
#include "core/graph/shrink.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "core/graph/builder.h"
#include "core/graph/dims.h"

namespace quern {

namespace {

class Shrinker {
 public:
  Shrinker(const Graph& graph, int64_t max_extent)
      : graph_(graph), max_extent_(max_extent), tile_(1), dims_(graph) {
    while (tile_ * 2 <= max_extent / 4) tile_ *= 2;
    for (size_t id = 0; id < graph.nodes.size(); ++id) note_parts(static_cast<ValueId>(id));
    collect_lengths();
  }

  Graph run() {
    for (;;) {
      GraphBuilder builder(graph_.name);
      const ValueId misfit = build(builder);
      if (misfit < 0) {
        Result<Graph> result = builder.finish();
        check(result.ok(), "a graph that was valid has lost its outputs");
        return std::move(*result);
      }
      pin(misfit);
    }
  }

 private:
  const Node& node(ValueId id) const { return graph_.node(id); }
  size_t rank(ValueId id) const { return node(id).type.shape.size(); }

  // ---- extents that are made of others ----

  void note_parts(ValueId id) {
    const Node& op = node(id);
    if (op.code == OpCode::reshape) {
      for_each_reshape_group(graph_, op, [&](const Ints& from, const Ints& to) {
        const ValueId x = op.operands[0];
        if (from.size() == 1 && to.size() > 1)
          for (int64_t dim : to) factors_[dims_.of(x, from[0])][id].push_back(dims_.of(id, dim));
        if (to.size() == 1 && from.size() > 1)
          for (int64_t dim : from) factors_[dims_.of(id, to[0])][id].push_back(dims_.of(x, dim));
        if (to.size() > 1 && from.size() > 1) {
          for (int64_t dim : from) pin_class(dims_.of(x, dim));
          for (int64_t dim : to) pin_class(dims_.of(id, dim));
        }
      });
    } else if (op.code == OpCode::concat) {
      const auto axis = static_cast<size_t>(op.attrs.axis->front());
      int64_t at = 0;
      for (ValueId operand : op.operands)
        cuts_[dims_.of(id, axis)].insert(at += node(operand).type.shape[axis]);
    } else if (op.code == OpCode::slice) {
      for (size_t dim = 0; dim < rank(id); ++dim) {
        if (is_whole(graph_, op, dim)) continue;
        std::set<int64_t>& cuts = cuts_[dims_.of(op.operands[0], dim)];
        cuts.insert((*op.attrs.start)[dim]);
        cuts.insert((*op.attrs.stop)[dim]);
      }
    }
  }

  // Calls f(start, length) for the pieces into which slices and concats cut a dimension.
  void for_each_piece(DimClass dim, const std::function<void(int64_t, int64_t)>& f) const {
    int64_t start = 0;
    auto piece = [&](int64_t end) {
      if (end > start) f(start, end - start);
      start = std::max(start, end);
    };
    if (auto cuts = cuts_.find(dim); cuts != cuts_.end())
      for (int64_t cut : cuts->second) piece(cut);
    piece(dims_.extent(dim));
  }

  void collect_lengths() {
    for (size_t dim = 0; dim < dims_.size(); ++dim)
      if (dims_.is_class(static_cast<DimClass>(dim)) && !factors_.count(static_cast<DimClass>(dim)))
        for_each_piece(static_cast<DimClass>(dim), [&](int64_t, int64_t length) {
          if (length > max_extent_) lengths_[length % tile_].insert(length);
        });
  }

  // The new length of a piece: the longest of those that are equal modulo the tile gets most, each other one
  // a tile less.
  int64_t shortened(int64_t length) const {
    const auto same = lengths_.find(length % tile_);
    if (length <= max_extent_ || same == lengths_.end()) return length;
    const auto longer = std::distance(same->second.upper_bound(length), same->second.end());
    const int64_t rest = length % tile_;
    const int64_t most = (max_extent_ - rest) / tile_, least = rest ? 0 : 1;
    return std::max(most - static_cast<int64_t>(longer), least) * tile_ + rest;
  }

  // Where position `at` of a dimension comes to lie.
  int64_t moved(DimClass dim, int64_t at) const {
    if (pinned_.count(dim)) return at;
    int64_t position = 0;
    for_each_piece(dim, [&](int64_t start, int64_t length) {
      if (start + length <= at) position += shortened(length);
    });
    return position;
  }

  int64_t new_extent(DimClass dim) const {
    if (pinned_.count(dim) || dims_.extent(dim) == 0) return dims_.extent(dim);
    const auto made_of = factors_.find(dim);
    if (made_of == factors_.end()) return moved(dim, dims_.extent(dim));
    int64_t product = 1;  // several reshapes that do not agree show when the graph is built
    for (DimClass factor : made_of->second.begin()->second) product *= new_extent(factor);
    return product;
  }

  Ints new_shape(ValueId id) const {
    Ints shape;
    for (size_t dim = 0; dim < rank(id); ++dim) shape.push_back(new_extent(dims_.of(id, dim)));
    return shape;
  }

  // ---- the new graph ----

  // Keeps order, overlaps and gaps of the old strides; long gaps are shortened.
  Ints new_strides(const Node& input, const Ints& shape) const {
    const Ints& old_shape = input.type.shape;
    if (input.strides == dense_strides(old_shape)) return dense_strides(shape);
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return input.strides[a] < input.strides[b]; });
    Ints strides = input.strides;
    int64_t old_end = 0, end = 0;  // of what the smaller strides span
    for (size_t dim : order) {
      const int64_t stride = input.strides[dim], gap = stride - old_end;
      if (stride == 0) continue;
      if (old_end > 0 && gap >= 0)
        strides[dim] = end + std::min(gap, max_extent_ / tile_ * tile_ + gap % tile_);
      old_end = stride * old_shape[dim];
      end = strides[dim] * shape[dim];
    }
    return strides;
  }

  Attrs new_attrs(ValueId id) const {
    const Node& op = node(id);
    Attrs attrs = op.attrs;
    if (attrs.shape) attrs.shape = new_shape(id);
    if (op.code == OpCode::slice)
      for (size_t dim = 0; dim < rank(id); ++dim) {
        const DimClass from = dims_.of(op.operands[0], dim);
        if (is_whole(graph_, op, dim)) {
          (*attrs.stop)[dim] = new_extent(from);
        } else {
          (*attrs.start)[dim] = moved(from, (*attrs.start)[dim]);
          (*attrs.stop)[dim] = moved(from, (*attrs.stop)[dim]);
        }
      }
    return attrs;
  }

  // The first node that does not come out with its new shape; -1 when all do. `builder` then holds the graph.
  ValueId build(GraphBuilder& builder) const {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const ValueId id = static_cast<ValueId>(i);
      const Node& old = node(id);
      const Ints shape = new_shape(id);
      Result<ValueId> added =
          old.code == OpCode::constant ? builder.add_constant(old.number, old.type.dtype == DType::i32)
          : old.code == OpCode::input
              ? builder.add_input(old.name, old.type.dtype, shape, new_strides(old, shape), old.is_const)
              : builder.add_op(old.code, old.operands, new_attrs(id), old.name);
      if (!added || builder.graph().node(id).type.shape != shape) return id;
    }
    for (ValueId output : graph_.outputs)
      if (!builder.add_output(output).ok()) return output;
    return -1;
  }

  void pin_dims(ValueId id) {
    for (size_t dim = 0; dim < rank(id); ++dim) pin_class(dims_.of(id, dim));
  }
  void pin_class(DimClass dim) {
    pinned_.insert(dim);
    if (auto made_of = factors_.find(dim); made_of != factors_.end())
      for (const auto& [reshape, factors] : made_of->second)
        for (DimClass factor : factors) pin_class(factor);
  }
  void pin(ValueId id) {
    const size_t before = pinned_.size();
    pin_dims(id);
    for (ValueId operand : node(id).operands) pin_dims(operand);
    check(pinned_.size() > before, "a graph does not build with its own extents");
  }

  const Graph& graph_;
  const int64_t max_extent_;
  int64_t tile_;
  Dimensions dims_;
  std::map<DimClass, std::map<ValueId, std::vector<DimClass>>> factors_;  // by the reshape that says so
  std::map<DimClass, std::set<int64_t>> cuts_;
  std::map<int64_t, std::set<int64_t>> lengths_;  // above max_extent, by what they leave modulo the tile
  std::set<DimClass> pinned_;
};

}  // namespace

Result<Graph> shrink(const Graph& graph, int64_t max_extent) {
  if (max_extent < 1)
    return Status(ErrorCode::INVALID_ARGUMENT,
                  "a graph cannot shrink to extents of " + std::to_string(max_extent));
  return Shrinker(graph, max_extent).run();
}

double work(const Graph& graph) {
  std::vector<bool> needed(graph.nodes.size());
  for (ValueId id : graph.outputs) needed[id] = true;
  double total = 0;
  for (size_t id = graph.nodes.size(); id-- > 0;) {
    if (!needed[id]) continue;
    const Node& node = graph.nodes[id];
    for (ValueId operand : node.operands) needed[operand] = true;
    const double inner =
        node.code == OpCode::matmul ? static_cast<double>(graph.node(node.operands[0]).type.shape.back()) : 1;
    // A reduction reads more than it writes.
    double elements = static_cast<double>(node.type.element_count());
    for (ValueId operand : node.operands)
      elements = std::max(
          elements,
          static_cast<double>(node.code == OpCode::matmul ? 0 : graph.node(operand).type.element_count()));
    total += elements * inner;
  }
  return total;
}

}  // namespace quern
