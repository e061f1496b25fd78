#include "core/graph/decompose.h"

#include "core/base/dtype_info.h"
#include "core/base/status.h"

namespace quern {

namespace {

bool narrows(const Graph& graph, const Node& node) {
  return node.code == OpCode::cast && is_narrow(node.type.dtype) &&
         graph.node(node.operands[0]).type.dtype == DType::f32;
}

bool sums_products(const Graph& graph, const Node& node) {
  return op_info(node.code).kind == OpKind::contraction ||
         (node.code == OpCode::reduce_sum && graph.node(node.operands[0]).code == OpCode::mul);
}

// Whether all that becomes of a value in its dtype is multiplied, and summed by products at last. Where a value is
// subtracted from what it was rounded from, is an output, or goes on in another dtype, what rounding took is seen.
std::vector<bool> find_only_multiplied(const Graph& graph) {
  std::vector<bool> out(graph.nodes.size(), true), is_read(graph.nodes.size());
  for (ValueId id : graph.outputs) out[static_cast<size_t>(id)] = false;
  for (size_t id = graph.nodes.size(); id-- > 0;) {
    const Node& node = graph.nodes[id];
    const OpKind kind = op_info(node.code).kind;
    const bool multiplies = kind == OpKind::movement || node.code == OpCode::mul || node.code == OpCode::neg;
    out[id] = out[id] && is_read[id];
    for (ValueId operand : node.operands) {
      const size_t from = static_cast<size_t>(operand);
      const bool same = graph.nodes[from].type.dtype == node.type.dtype;
      out[from] = out[from] && same && (sums_products(graph, node) || (multiplies && out[id]));
      is_read[from] = true;
    }
  }
  return out;
}

class Decomposer {
 public:
  explicit Decomposer(const Graph& from) : from_(from), kept_(kept_casts(from)) {}

  Graph run(std::vector<ValueId>* result_of) {
    to_.name = from_.name;
    for (const Node& node : from_.nodes) {
      Node copy = node;
      copy.keeps_precision = node.keeps_precision || kept_[renumbered_.size()];
      for (ValueId& operand : copy.operands) operand = renumbered_[operand];
      const bool composite = op_info(node.code).kind == OpKind::composite;
      const ValueId id = composite ? define(copy) : append(std::move(copy));
      renumbered_.push_back(id);
      if (composite) {
        to_.nodes[id].name = node.name;
        to_.nodes[id].type.dtype = node.type.dtype;
      }
    }
    for (ValueId id : from_.inputs) to_.inputs.push_back(renumbered_[id]);
    for (ValueId id : from_.outputs) to_.outputs.push_back(renumbered_[id]);
    if (result_of) *result_of = std::move(renumbered_);
    return std::move(to_);
  }

 private:
  ValueId define(const Node& node) {
    switch (node.code) {
      case OpCode::reduce_mean:
        return decompose_reduce_mean(node);
      case OpCode::softmax:
        return decompose_softmax(node);
      case OpCode::rms_norm:
        return decompose_rms_norm(node);
      case OpCode::layer_norm:
        return decompose_layer_norm(node);
      default:
        fatal(__FILE__, __LINE__, "a composite operator has no definition");
    }
  }

  ValueId decompose_reduce_mean(const Node& node) {
    return mean(floating(node.operands[0]), *node.attrs.axis, *node.attrs.keepdims);
  }

  ValueId decompose_softmax(const Node& node) {
    const ValueId x = floating(node.operands[0]);
    const Ints& axis = *node.attrs.axis;
    const ValueId e = op(OpCode::exp, {op(OpCode::sub, {x, reduce(OpCode::reduce_max, x, axis, true)})});
    return op(OpCode::div, {e, reduce(OpCode::reduce_sum, e, axis, true)});
  }

  ValueId decompose_rms_norm(const Node& node) {
    const ValueId x = floating(node.operands[0]);
    return scale_and_shift(node, normalize(x, x, node));
  }

  ValueId decompose_layer_norm(const Node& node) {
    const ValueId x = floating(node.operands[0]);
    const ValueId centered = op(OpCode::sub, {x, mean(x, *node.attrs.axis, true)});
    return scale_and_shift(node, normalize(centered, centered, node));
  }

  // x / sqrt(mean(y^2) + eps)
  ValueId normalize(ValueId x, ValueId y, const Node& node) {
    const ValueId power = mean(op(OpCode::square, {y}), *node.attrs.axis, true);
    return op(OpCode::mul, {x, op(OpCode::rsqrt, {op(OpCode::add, {power, number(*node.attrs.eps)})})});
  }

  // Times the weight and plus the bias, if the node has them: their dimensions lie along the axes.
  ValueId scale_and_shift(const Node& node, ValueId x) {
    if (node.operands.size() > 1) x = op(OpCode::mul, {x, along_axes(node.operands[1], node)});
    if (node.operands.size() > 2) x = op(OpCode::add, {x, along_axes(node.operands[2], node)});
    return x;
  }

  ValueId along_axes(ValueId value, const Node& node) {
    Attrs attrs;
    attrs.shape = Ints(node.type.shape.size(), 1);
    for (int64_t axis : *node.attrs.axis) (*attrs.shape)[axis] = node.type.shape[axis];
    return op(OpCode::reshape, {floating(value)}, attrs);
  }

  ValueId mean(ValueId x, const Ints& axis, bool keepdims) {
    double count = 1;
    for (int64_t i : axis) count *= static_cast<double>(to_.node(x).type.shape[i]);
    return op(OpCode::div, {reduce(OpCode::reduce_sum, x, axis, keepdims), number(count)});
  }

  ValueId reduce(OpCode code, ValueId x, const Ints& axis, bool keepdims) {
    Attrs attrs;
    attrs.axis = axis;
    attrs.keepdims = keepdims;
    return op(code, {x}, attrs);
  }

  // Integers and truth values as numbers; floats as they are.
  ValueId floating(ValueId x) {
    if (is_float(to_.node(x).type.dtype)) return x;
    Attrs attrs;
    attrs.dtype = DType::f32;
    return op(OpCode::cast, {x}, attrs);
  }

  ValueId number(double value) {
    Node node;
    node.code = OpCode::constant;
    node.type = {DType::f32, {}, true};
    node.number = value;
    return append(std::move(node));
  }

  ValueId op(OpCode code, std::vector<ValueId> operands, Attrs attrs = {}) {
    Node node;
    node.code = code;
    node.operands = std::move(operands);
    node.attrs = std::move(attrs);
    const std::vector<TensorType> types = to_.operand_types(node);
    auto type = infer_type(code, types, node.attrs);
    check(type.ok(), "a definition of a composite operator is not well typed");
    node.type = std::move(*type);
    // What is inside a definition is real arithmetic, whatever it was made of.
    if (is_float(node.type.dtype)) node.type.dtype = DType::f32;
    node.name = "d" + std::to_string(to_.nodes.size());
    return append(std::move(node));
  }

  ValueId append(Node node) {
    to_.nodes.push_back(std::move(node));
    return static_cast<ValueId>(to_.nodes.size()) - 1;
  }

  const Graph& from_;
  const std::vector<bool> kept_;
  Graph to_;
  std::vector<ValueId> renumbered_;
};

}  // namespace

Graph decompose(const Graph& graph, std::vector<ValueId>* result_of) {
  return Decomposer(graph).run(result_of);
}

std::vector<bool> kept_casts(const Graph& graph) {
  std::vector<bool> out = find_only_multiplied(graph);
  for (size_t id = 0; id < out.size(); ++id) out[id] = out[id] && narrows(graph, graph.nodes[id]);
  return out;
}

std::vector<std::optional<DType>> softmax_dtypes(const Graph& primitive) {
  const std::vector<Node>& nodes = primitive.nodes;
  std::vector<std::vector<ValueId>> users(nodes.size());
  std::vector<bool> is_output(nodes.size());
  for (ValueId id : primitive.outputs) is_output[static_cast<size_t>(id)] = true;
  for (size_t id = 0; id < nodes.size(); ++id)
    for (ValueId operand : nodes[id].operands)
      users[static_cast<size_t>(operand)].push_back(static_cast<ValueId>(id));
  auto users_of = [&](ValueId id) { return users[static_cast<size_t>(id)]; };
  // In which 16 bits all have a value that read it.
  auto rounded = [&](ValueId id) -> std::optional<DType> {
    if (is_narrow(primitive.node(id).type.dtype)) return primitive.node(id).type.dtype;
    std::optional<DType> all;
    for (ValueId user : users_of(id)) {
      const Node& node = primitive.node(user);
      if (!node.keeps_precision || (all && *all != node.type.dtype)) return std::nullopt;
      all = node.type.dtype;
    }
    return is_output[static_cast<size_t>(id)] ? std::nullopt : all;
  };
  // The quotient of e^(s - m) and its sum, if nothing else reads the numerator.
  auto quotient_of = [&](ValueId exp) -> ValueId {
    ValueId quotient = -1;
    for (ValueId user : users_of(exp)) {
      const Node& node = primitive.node(user);
      if (node.code == OpCode::div && node.operands[0] == exp && quotient < 0)
        quotient = user;
      else if (node.code != OpCode::reduce_sum)
        return -1;
    }
    return quotient;
  };
  std::vector<std::optional<DType>> out(nodes.size());
  std::vector<bool> seen(nodes.size());
  for (size_t id = 0; id < nodes.size(); ++id) {
    if (nodes[id].code != OpCode::exp) continue;
    const Node& difference = primitive.node(nodes[id].operands[0]);
    if (difference.code != OpCode::sub) continue;
    const size_t scores = static_cast<size_t>(difference.operands[0]);
    const Node& largest = primitive.node(difference.operands[1]);
    if (largest.code != OpCode::reduce_max || largest.operands[0] != difference.operands[0]) continue;
    const ValueId quotient = quotient_of(static_cast<ValueId>(id));
    const std::optional<DType> dtype = quotient < 0 ? std::nullopt : rounded(quotient);
    out[scores] = seen[scores] && out[scores] != dtype ? std::nullopt : dtype;
    seen[scores] = true;
  }
  return out;
}

}  // namespace quern
