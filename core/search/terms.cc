#include "core/search/terms.h"

#include <algorithm>
#include <map>

#include "core/base/dtype_info.h"
#include "core/graph/decompose.h"
#include "core/graph/dims.h"

namespace quern {

namespace {

Status outside(std::string reason) { return Status(ErrorCode::UNSUPPORTED, std::move(reason)); }

bool has_real_type(const TensorType& type) { return is_float(type.dtype) || type.literal; }

class TermBuilder {
 public:
  explicit TermBuilder(const Graph& graph)
      : graph_(graph), whole_(decompose(graph, &became_)), dims_(whole_) {}

  Result<Terms> run() {
    if (Status status = name_labels(); !status.ok()) return status;
    find_counts();
    of_.assign(whole_.nodes.size(), -1);
    for (size_t id = 0; id < whole_.nodes.size(); ++id) {
      Status status = add(static_cast<ValueId>(id));
      if (!status.ok()) return status;
    }
    const std::vector<bool> only_cast = find_only_cast();
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      terms_.of_value.push_back(of_[became_[id]]);
      const TensorType& type = graph_.nodes[id].type;
      const bool written =
          !type.literal && !only_cast[id] && !is_exact_cast(graph_, static_cast<ValueId>(id));
      terms_.dtype_of_value.push_back(written ? std::optional(type.dtype) : std::nullopt);
      if (op_info(graph_.nodes[id].code).kind == OpKind::composite) add_composite(static_cast<ValueId>(id));
    }
    terms_.egraph.rebuild();
    for (ClassId& id : terms_.of_value)
      if (id >= 0) id = terms_.egraph.find(id);
    for (ValueId output : whole_.outputs) {
      if (Status status = add_goal(output); !status.ok()) return status;
    }
    terms_.of_definitions = of_;
    terms_.softmax_dtypes = softmax_dtypes(whole_);
    return std::move(terms_);
  }

 private:
  const Node& node(ValueId id) const { return whole_.node(id); }

  // ---- labels ----

  // Labels are the classes of dimensions that inputs have; every other varies along none.
  Status name_labels() {
    for (size_t i = 0; i < whole_.inputs.size(); ++i) {
      const ValueId id = whole_.inputs[i];
      for (int d = 0; d < node(id).type.rank(); ++d) {
        const int64_t extent = node(id).type.shape[d];
        if (extent == 0) return outside("\"" + node(id).name + "\" has no elements");
        if (extent == 1) continue;
        const auto [at, is_new] =
            label_of_.try_emplace(dims_.of(id, d), static_cast<Label>(terms_.labels.size()));
        if (is_new)
          terms_.labels.push_back({node(id).name + std::to_string(d), static_cast<int>(i), d, extent});
      }
    }
    if (terms_.labels.size() > kMaxLabels - 2)
      return outside("more than " + std::to_string(kMaxLabels - 2) + " different dimensions");
    for (size_t id = 0; id < whole_.nodes.size(); ++id) {
      Dims dims = dims_of(static_cast<ValueId>(id));
      std::erase(dims, kNoLabel);
      std::sort(dims.begin(), dims.end());
      if (std::adjacent_find(dims.begin(), dims.end()) != dims.end())
        return outside("\"" + node(static_cast<ValueId>(id)).name +
                       "\" has two dimensions that the operators make one");
    }
    return {};
  }

  // Dimensions that no input has (a broadcast to a new extent) have no label: nothing varies along them.
  Label label_of(ValueId id, size_t dim) const {
    const auto at = label_of_.find(dims_.of(id, dim));
    return node(id).type.shape[dim] == 1 || at == label_of_.end() ? kNoLabel : at->second;
  }
  Dims dims_of(ValueId id) const {
    Dims dims;
    for (size_t d = 0; d < node(id).type.shape.size(); ++d) dims.push_back(label_of(id, d));
    return dims;
  }

  // What only casts read that keep precision: the dtype is theirs.
  std::vector<bool> find_only_cast() const {
    std::vector<bool> out(graph_.nodes.size(), true), is_read(graph_.nodes.size());
    for (ValueId id : graph_.outputs) out[id] = false;
    for (size_t id = 0; id < graph_.nodes.size(); ++id)
      for (ValueId operand : graph_.nodes[id].operands) {
        out[operand] = out[operand] && node(became_[id]).keeps_precision;
        is_read[operand] = true;
      }
    for (size_t id = 0; id < out.size(); ++id) out[id] = out[id] && is_read[id];
    return out;
  }

  // ---- terms ----

  // Constants by which decomposition divides a sum: the number of its elements.
  void find_counts() {
    std::vector<bool> written(whole_.nodes.size());
    for (ValueId id : became_) written[id] = true;
    for (const Node& divide : whole_.nodes) {
      if (divide.code != OpCode::div || written[divide.operands[1]]) continue;
      const Node& sum = node(divide.operands[0]);
      if (sum.code != OpCode::reduce_sum || node(divide.operands[1]).code != OpCode::constant) continue;
      LabelSet set = 0;
      for (int64_t axis : *sum.attrs.axis)
        if (const Label label = label_of(sum.operands[0], axis); label >= 0) set |= label_bit(label);
      counts_[divide.operands[1]] = set;
    }
  }

  Status add(ValueId id) {
    const Node& op = node(id);
    switch (op.code) {
      case OpCode::input:
        return add_input(id);
      case OpCode::constant:
        of_[id] = add_constant(id);
        return {};
      case OpCode::matmul:
        return add_matmul(id);
      case OpCode::transpose:
      case OpCode::broadcast:
      case OpCode::reshape:
        of_[id] = of_[op.operands[0]];
        return {};
      case OpCode::cast:
        add_cast(id);
        return {};
      default:
        break;
    }
    if (is_reduction(op.code)) {
      Dims labels;
      for (int64_t axis : *op.attrs.axis)
        if (node(op.operands[0]).type.shape[axis] != 1) labels.push_back(label_of(op.operands[0], axis));
      return reduce(id, op.code, of_[op.operands[0]], labels);
    }
    if (!is_elementwise(op.code)) return outside(std::string("the operator ") + op_info(op.code).text);
    ENode term{op.code, 0, 0, {}};
    for (ValueId operand : op.operands) term.children.push_back(of_[operand]);
    of_[id] = terms_.egraph.add(std::move(term));
    return {};
  }

  Status add_input(ValueId id) {
    const auto at = std::find(whole_.inputs.begin(), whole_.inputs.end(), id) - whole_.inputs.begin();
    terms_.inputs.resize(whole_.inputs.size());
    terms_.inputs[at] = dims_of(id);
    of_[id] = terms_.egraph.add_leaf(static_cast<int32_t>(at), label_set(terms_.inputs[at]));
    return {};
  }

  void add_cast(ValueId id) {
    const Node& op = node(id);
    const Node& from = node(op.operands[0]);
    of_[id] = of_[op.operands[0]];
    if (from.type.dtype == DType::boolean) {
      const ClassId one = terms_.egraph.add({OpCode::constant, 0, 1, {}});
      const ClassId zero = terms_.egraph.add({OpCode::constant, 0, 0, {}});
      of_[id] = terms_.egraph.add({OpCode::where, 0, 0, {of_[id], one, zero}});
    } else if (const bool is_float_now = is_truncation(whole_, op.operands[0]);
               !op.keeps_precision && !is_exact_cast(whole_, id) &&
               !(is_float_now && op.type.dtype == DType::f32)) {
      of_[id] = terms_.egraph.add({OpCode::cast, static_cast<int32_t>(op.type.dtype), 0, {of_[id]}});
    }
  }

  ClassId add_constant(ValueId id) {
    int32_t index = 0;
    if (const auto at = counts_.find(id); at != counts_.end()) {
      const auto known = std::find(terms_.counts.begin(), terms_.counts.end(), at->second);
      index = 1 + static_cast<int32_t>(known - terms_.counts.begin());
      if (known == terms_.counts.end()) terms_.counts.push_back(at->second);
    }
    return terms_.egraph.add({OpCode::constant, index, node(id).number, {}});
  }

  Status add_matmul(ValueId id) {
    const Node& op = node(id);
    const ValueId a = op.operands[0], b = op.operands[1];
    const ClassId product = terms_.egraph.add({OpCode::mul, 0, 0, {of_[a], of_[b]}});
    if (node(a).type.shape.back() == 1) {
      of_[id] = product;
      return {};
    }
    return reduce(id, OpCode::reduce_sum, product, {label_of(a, node(a).type.shape.size() - 1)});
  }

  Status reduce(ValueId id, OpCode code, ClassId operand, const Dims& labels) {
    for (Label label : labels) {
      if (label < 0 || !has_label(terms_.egraph.labels(operand), label))
        return outside("\"" + node(id).name + "\" reduces over a dimension along which nothing varies");
      operand = terms_.egraph.add({code, label, 0, {operand}});
    }
    of_[id] = operand;
    return {};
  }

  // The composite as an operator of its own, equal to its definition.
  void add_composite(ValueId id) {
    const Node& op = graph_.node(id);
    if (op.code == OpCode::reduce_mean) return;
    CompositeInfo info{op.code, {}, op.attrs.eps.value_or(0)};
    const ValueId operand = became_[op.operands[0]];
    for (int64_t axis : *op.attrs.axis)
      if (const Label label = label_of(operand, axis); label >= 0) info.axes.push_back(label);
    // A weight must lie along the axes in their order, which axes of extent 1 would break.
    if (info.axes.size() != op.attrs.axis->size()) return;
    int32_t index = 0;
    for (; index < static_cast<int32_t>(terms_.composites.size()); ++index) {
      const CompositeInfo& known = terms_.composites[index];
      if (known.code == info.code && known.axes == info.axes && known.eps == info.eps) break;
    }
    if (index == static_cast<int32_t>(terms_.composites.size())) terms_.composites.push_back(info);
    ENode term{op.code, index, 0, {}};
    for (ValueId value : op.operands) term.children.push_back(of_[became_[value]]);
    const ClassId self = terms_.egraph.add(std::move(term));
    terms_.egraph.merge(of_[became_[id]], self, {});
  }

  Status add_goal(ValueId output) {
    const Dims dims = dims_of(output);
    const ClassId id = terms_.egraph.find(of_[output]);
    for (size_t d = 0; d < dims.size(); ++d)
      if (node(output).type.shape[d] != 1 && (dims[d] < 0 || !has_label(terms_.egraph.labels(id), dims[d])))
        return outside("the output \"" + node(output).name + "\" does not vary along dimension " +
                       std::to_string(d));
    terms_.goals.push_back(id);
    terms_.goal_dims.push_back(dims);
    return {};
  }

  const Graph& graph_;
  std::vector<ValueId> became_;  // values of graph_ in whole_; before whole_, which fills it
  const Graph whole_;            // decomposed
  const Dimensions dims_;
  std::map<DimClass, Label> label_of_;
  std::map<ValueId, LabelSet> counts_;
  std::vector<ClassId> of_;  // of whole_'s values
  Terms terms_;
};

}  // namespace

LabelSet label_set(const Dims& dims) {
  LabelSet set = 0;
  for (Label label : dims)
    if (label >= 0) set |= label_bit(label);
  return set;
}

bool is_exact_cast(const Graph& graph, ValueId id) {
  const Node& op = graph.node(id);
  if (op.code != OpCode::cast) return false;
  const DType from = graph.node(op.operands[0]).type.dtype;
  return is_float(from) && (op.type.dtype == DType::f32 || op.type.dtype == from);
}

bool is_truncation(const Graph& graph, ValueId id) {
  const Node& op = graph.node(id);
  if (op.code != OpCode::cast || op.type.dtype != DType::i32 ||
      !is_float(graph.node(op.operands[0]).type.dtype) ||
      std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end())
    return false;
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& user) {
    const bool reads = std::find(user.operands.begin(), user.operands.end(), id) != user.operands.end();
    return !reads || (user.code == OpCode::cast && is_float(user.type.dtype));
  });
}

bool belongs_to_readers(const Graph& graph, ValueId id) {
  return (is_exact_cast(graph, id) || is_truncation(graph, id)) &&
         std::find(graph.outputs.begin(), graph.outputs.end(), id) == graph.outputs.end();
}

std::string outside_reason(const Graph& graph, ValueId id) {
  const Node& op = graph.node(id);
  const OpInfo& info = op_info(op.code);
  if (info.kind == OpKind::conversion && (is_float(op.type.dtype) || is_truncation(graph, id)))
    return op.type.element_count() == 0 ? "its result has no elements" : "";
  if (info.kind == OpKind::conversion || info.kind == OpKind::generator || op.code == OpCode::slice ||
      op.code == OpCode::concat)
    return std::string("the operator ") + info.text + " is outside the algebra";
  if (op.code == OpCode::reshape && !renamed_dims(graph.node(op.operands[0]).type.shape, op.type.shape))
    return "the reshape splits or joins dimensions";
  const bool condition = op.type.dtype == DType::boolean;
  if (!has_real_type(op.type) && !condition)
    return std::string("its type is ") + dtype_name(op.type.dtype) + ", the algebra is that of real numbers";
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const TensorType& type = graph.node(op.operands[i]).type;
    const bool selects = info.kind == OpKind::elementwise && info.result == ResultRule::select && i == 0;
    const bool decides = type.dtype == DType::boolean || type.dtype == DType::i32;
    if (!has_real_type(type) && !(selects && decides))
      return std::string("an operand has type ") + dtype_name(type.dtype) +
             ", the algebra is that of real numbers";
  }
  if (op.type.element_count() == 0) return "its result has no elements";
  return "";
}

DType dtype_between_kernels(const Terms& terms, ClassId id) {
  std::optional<DType> all;
  for_each_dtype(terms, id, [&](DType dtype) { all = all.value_or(dtype) == dtype ? dtype : DType::f32; });
  return all && is_narrow(*all) ? *all : DType::f32;
}

Result<Terms> make_terms(const Graph& graph) {
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (op_info(graph.nodes[id].code).kind == OpKind::leaf) continue;
    if (std::string reason = outside_reason(graph, static_cast<ValueId>(id)); !reason.empty())
      return outside("\"" + graph.nodes[id].name + "\": " + reason);
  }
  return TermBuilder(graph).run();
}

}  // namespace quern
