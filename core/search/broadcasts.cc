#include "core/search/broadcasts.h"

#include <algorithm>

#include "core/graph/dims.h"
#include "core/search/rewriter.h"

namespace quern {

namespace {

int64_t count(const Ints& shape) { return TensorType{DType::f32, shape, false}.element_count(); }

class BroadcastRewriter : Rewriter {
 public:
  explicit BroadcastRewriter(const Graph& graph) : Rewriter(graph), values_(graph.nodes.size()) {}

  // Nothing if no operator reads less than it did, or what is made is too large for a graph.
  std::optional<Graph> run() {
    for (ValueId id : graph_.inputs)
      if (!(values_[index(id)].whole = copied(node(id)))) return std::nullopt;
    for (ValueId id = 0; id < end(); ++id) {
      values_[index(id)].once = shape_once(id);
      const bool waits = values_[index(id)].once && !is_output(id);
      if (!waits && !whole(id)) return std::nullopt;
    }
    if (!found_) return std::nullopt;
    return finished([this](ValueId output) { return whole(output); });
  }

 private:
  struct Value {
    std::optional<Ints> once;  // its shape without repetitions, of the same rank, if that has fewer elements
    // It, and what it repeats, in the graph that is made; when somebody asks.
    std::optional<ValueId> whole, repeated;
  };

  static Ints with_rank(Ints shape, size_t rank) {
    shape.insert(shape.begin(), rank - shape.size(), 1);
    return shape;
  }
  const Ints& shape(ValueId id) const { return node(id).type.shape; }
  const Ints& least_shape(ValueId id) const {
    const std::optional<Ints>& once = values_[index(id)].once;
    return once ? *once : shape(id);
  }
  bool is_of_one_operand(const Node& op) const {
    return op.operands.size() == 1 &&
           (op_info(op.code).kind == OpKind::elementwise || op.code == OpCode::cast);
  }

  std::optional<Ints> shape_once(ValueId id) const {
    const Node& op = node(id);
    if (op.code == OpCode::broadcast) {
      Ints least = with_rank(least_shape(op.operands[0]), op.type.shape.size());
      return count(least) < op.type.element_count() ? std::optional(std::move(least)) : std::nullopt;
    }
    if (op.operands.empty() || !values_[index(op.operands[0])].once) return std::nullopt;
    const Ints& least = least_shape(op.operands[0]);
    if (is_of_one_operand(op)) return least;
    if (op.code == OpCode::transpose) {
      Ints moved;
      for (int64_t from : *op.attrs.perm) moved.push_back(least[index(from)]);
      return moved;
    }
    const auto dims =
        op.code == OpCode::reshape ? renamed_dims(shape(op.operands[0]), op.type.shape) : std::nullopt;
    if (!dims) return std::nullopt;
    Ints renamed;
    for (int dim : *dims) renamed.push_back(dim < 0 ? 1 : least[index(dim)]);
    return renamed;
  }

  std::optional<ValueId> whole(ValueId id) {
    std::optional<ValueId>& made = values_[index(id)].whole;
    if (made) return made;
    const Node& op = node(id);
    if (op.code == OpCode::constant) return made = copied(op);
    std::vector<ValueId> operands;
    const std::vector<bool> by_itself = repeats_by_itself(op);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const auto operand = by_itself[i] ? repeated(op.operands[i]) : whole(op.operands[i]);
      if (!operand) return std::nullopt;
      operands.push_back(*operand);
    }
    return made = added(op.code, operands, op.attrs, op.name);
  }

  // What the value repeats.
  std::optional<ValueId> repeated(ValueId id) {
    Value& value = values_[index(id)];
    if (!value.once) return whole(id);
    if (value.repeated) return value.repeated;
    const Node& op = node(id);
    const std::optional<ValueId> from = repeated(op.operands[0]);
    if (!from) return std::nullopt;
    Attrs attrs = op.attrs;
    OpCode code = op.code;
    if (code == OpCode::broadcast) {
      if (builder_.graph().node(*from).type.shape == *value.once) return value.repeated = from;
      code = OpCode::reshape;
    }
    if (code == OpCode::reshape) attrs.shape = value.once;
    return value.repeated = added(code, {*from}, attrs, unused(op.name + "_once"));
  }

  // Which operands an operator would repeat itself: what it makes must have the same shape without their repetitions.
  std::vector<bool> repeats_by_itself(const Node& op) {
    std::vector<bool> out(op.operands.size());
    const OpKind kind = op_info(op.code).kind;
    if (kind != OpKind::elementwise && kind != OpKind::contraction) return out;
    std::vector<TensorType> types;
    for (ValueId operand : op.operands) types.push_back(node(operand).type);
    for (size_t i = 0; i < types.size(); ++i) {
      const std::optional<Ints>& once = values_[index(op.operands[i])].once;
      if (!once) continue;
      types[i].shape = *once;
      Attrs attrs = op.attrs;
      const Result<TensorType> made = infer_type(op.code, types, attrs);
      out[i] = made && made->shape == op.type.shape;
      if (!out[i]) types[i] = node(op.operands[i]).type;
      found_ |= out[i];
    }
    return out;
  }

  std::vector<Value> values_;
  bool found_ = false;
};

}  // namespace

Graph without_broadcasts(const Graph& graph) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(),
                   [](const Node& node) { return node.code == OpCode::broadcast; }))
    return graph;
  std::optional<Graph> made = BroadcastRewriter(graph).run();
  return made ? std::move(*made) : graph;
}

}  // namespace quern
