#include "core/search/sinks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/graph/builder.h"

namespace quern {

namespace {

// A slice that reads one part of a softmax over several.
struct PartOfSoftmax {
  ValueId softmax = -1;
  std::vector<ValueId> parts;  // what is concatenated
  size_t part = 0;             // which of them is read
  int64_t axis = 0;
  std::vector<DType> casts_in,
      casts_out;  // in front of the softmax, in the order of the program, and behind it
};

class SinkRemover {
 public:
  explicit SinkRemover(const Graph& graph)
      : graph_(graph), builder_(graph.name), became_(graph.nodes.size(), -1) {
    for (const Node& node : graph.nodes) names_.insert(node.name);
    for (size_t id = 0; id < graph.nodes.size(); ++id)
      if (auto found = find(static_cast<ValueId>(id)))
        found_.emplace(static_cast<ValueId>(id), std::move(*found));
  }

  bool finds_some() const { return !found_.empty(); }

  // Nothing if what is made is too large for a graph.
  std::optional<Graph> run() {
    for (ValueId id : graph_.inputs) {
      const Node& input = graph_.node(id);
      keep(id,
           builder_.add_input(input.name, input.type.dtype, input.type.shape, input.strides, input.is_const));
    }
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.nodes.size()); ++id) copy(id);
    for (ValueId output : graph_.outputs) failed_ |= failed_ || !builder_.add_output(became(output)).ok();
    if (failed_) return std::nullopt;
    Result<Graph> made = builder_.finish();
    return made ? std::optional(std::move(*made)) : std::nullopt;
  }

 private:
  ValueId became(ValueId id) const { return became_[static_cast<size_t>(id)]; }
  void keep(ValueId id, Result<ValueId> made) {
    failed_ |= !made;
    became_[static_cast<size_t>(id)] = made ? *made : 0;
  }

  ValueId through_casts(ValueId id, std::vector<DType>& casts) const {
    for (; graph_.node(id).code == OpCode::cast; id = graph_.node(id).operands[0])
      casts.insert(casts.begin(), graph_.node(id).type.dtype);
    return id;
  }

  // What a softmax along `axis` is of, but for what shifts all of a row.
  ValueId unshifted(ValueId id, size_t axis) const {
    const Node& node = graph_.node(id);
    if (node.code != OpCode::sub) return id;
    const TensorType &value = graph_.node(node.operands[0]).type, &shift = graph_.node(node.operands[1]).type;
    const size_t from_end = node.type.shape.size() - axis;
    const bool along =
        shift.shape.size() >= from_end && *(shift.shape.end() - static_cast<std::ptrdiff_t>(from_end)) != 1;
    return value.shape == node.type.shape && value.dtype == node.type.dtype && !along
               ? unshifted(node.operands[0], axis)
               : id;
  }

  std::optional<PartOfSoftmax> find(ValueId slice) const {
    const Node& node = graph_.node(slice);
    if (node.code != OpCode::slice) return std::nullopt;
    PartOfSoftmax out;
    out.softmax = through_casts(node.operands[0], out.casts_out);
    const Node& softmax = graph_.node(out.softmax);
    if (softmax.code != OpCode::softmax || softmax.attrs.axis->size() != 1) return std::nullopt;
    out.axis = softmax.attrs.axis->front();
    const size_t axis = static_cast<size_t>(out.axis);
    ValueId from = unshifted(softmax.operands[0], axis);
    for (ValueId next; (next = unshifted(through_casts(from, out.casts_in), axis)) != from;) from = next;
    const Node& concat = graph_.node(from);
    if (concat.code != OpCode::concat || concat.attrs.axis->front() != out.axis) return std::nullopt;
    out.parts = concat.operands;
    int64_t first = 0;
    for (; out.part < out.parts.size(); ++out.part) {
      const int64_t last = first + graph_.node(out.parts[out.part]).type.shape[axis];
      if (is_slice(node, softmax.type.shape, axis, first, last)) break;
      first = last;
    }
    if (out.part == out.parts.size() || !reads_only(out.softmax, first, node)) return std::nullopt;
    return out;
  }

  static bool is_slice(const Node& slice, const Ints& shape, size_t axis, int64_t first, int64_t last) {
    bool is = true;
    for (size_t d = 0; d < shape.size(); ++d)
      is = is && (*slice.attrs.step)[d] == 1 && (*slice.attrs.start)[d] == (d == axis ? first : 0) &&
           (*slice.attrs.stop)[d] == (d == axis ? last : shape[d]);
    return is;
  }

  // Whether all that is read of a value, behind casts too, is what `slice` takes.
  bool reads_only(ValueId value, int64_t first, const Node& slice) const {
    if (std::find(graph_.outputs.begin(), graph_.outputs.end(), value) != graph_.outputs.end()) return false;
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Node& user = graph_.nodes[id];
      if (std::find(user.operands.begin(), user.operands.end(), value) == user.operands.end()) continue;
      const bool same = user.code == OpCode::slice && user.attrs == slice.attrs;
      if (!same && !(user.code == OpCode::cast && reads_only(static_cast<ValueId>(id), first, slice)))
        return false;
    }
    return true;
  }

  void copy(ValueId id) {
    const Node& node = graph_.node(id);
    if (failed_ || node.code == OpCode::input) return;
    if (node.code == OpCode::constant)
      return keep(id, builder_.add_constant(node.number, node.type.dtype == DType::i32));
    if (const auto at = found_.find(id); at != found_.end()) return write_out(id, at->second);
    std::vector<ValueId> operands;
    for (ValueId operand : node.operands) operands.push_back(became(operand));
    keep(id, builder_.add_op(node.code, operands, node.attrs, node.name));
  }

  std::string unused_name() {
    std::string name;
    do name = "of_sinks_" + std::to_string(next_name_++);
    while (!names_.insert(name).second);
    return name;
  }
  ValueId add(OpCode code, std::vector<ValueId> operands, Attrs attrs = {}, const std::string& name = "") {
    if (failed_) return 0;
    Result<ValueId> made =
        builder_.add_op(code, operands, std::move(attrs), name.empty() ? unused_name() : name);
    failed_ |= !made;
    return made ? *made : 0;
  }
  ValueId cast(ValueId value, DType dtype, const std::string& name = "") {
    Attrs attrs;
    attrs.dtype = dtype;
    return add(OpCode::cast, {value}, std::move(attrs), name);
  }
  ValueId reduce(OpCode code, ValueId value, int64_t axis) {
    Attrs attrs;
    attrs.axis = Ints{axis};
    attrs.keepdims = true;
    return add(code, {value}, std::move(attrs));
  }

  // A part in f32, as a softmax has it, and not repeated along other dimensions than its own.
  ValueId operand(const PartOfSoftmax& what, size_t part) {
    ValueId id = what.parts[part];
    const size_t axis = static_cast<size_t>(what.axis);
    while (part != what.part && graph_.node(id).code == OpCode::broadcast &&
           graph_.node(id).type.shape[axis] == 1)
      id = graph_.node(id).operands[0];
    ValueId out = became(id);
    for (DType dtype : what.casts_in) out = cast(out, dtype);
    return builder_.graph().node(out).type.dtype == DType::f32 ? out : cast(out, DType::f32);
  }

  void write_out(ValueId id, const PartOfSoftmax& what) {
    const size_t axis = static_cast<size_t>(what.axis);
    const ValueId own = operand(what, what.part);
    std::vector<ValueId> others;
    ValueId all = own;
    for (size_t part = 0; part < what.parts.size(); ++part) {
      if (part == what.part) continue;
      others.push_back(operand(what, part));
      const bool one = graph_.node(what.parts[part]).type.shape[axis] == 1;
      all =
          add(OpCode::max, {all, one ? others.back() : reduce(OpCode::reduce_max, others.back(), what.axis)});
    }
    const ValueId largest = reduce(OpCode::reduce_max, all, what.axis);
    auto exponentials = [&](ValueId value) { return add(OpCode::exp, {add(OpCode::sub, {value, largest})}); };
    const ValueId numerators = exponentials(own);
    ValueId sum = reduce(OpCode::reduce_sum, numerators, what.axis);
    for (ValueId other : others) {
      const ValueId terms = exponentials(other);
      const Ints& shape = builder_.graph().node(other).type.shape;
      const bool one = *(shape.end() - (graph_.node(what.softmax).type.rank() - what.axis)) == 1;
      sum = add(OpCode::add, {sum, one ? terms : reduce(OpCode::reduce_sum, terms, what.axis)});
    }
    std::vector<DType> casts = what.casts_out;
    casts.insert(casts.begin(), graph_.node(what.softmax).type.dtype);
    if (casts[0] == DType::f32) casts.erase(casts.begin());
    const std::string& name = graph_.node(id).name;
    ValueId out = add(OpCode::div, {numerators, sum}, {}, casts.empty() ? name : "");
    for (size_t i = 0; i < casts.size(); ++i) out = cast(out, casts[i], i + 1 == casts.size() ? name : "");
    became_[static_cast<size_t>(id)] = out;
  }

  const Graph& graph_;
  GraphBuilder builder_;
  std::set<std::string> names_;
  int next_name_ = 0;
  std::vector<ValueId> became_;
  std::map<ValueId, PartOfSoftmax> found_;  // by slice
  bool failed_ = false;
};

}  // namespace

Graph without_sinks(const Graph& graph) {
  SinkRemover remover(graph);
  if (!remover.finds_some()) return graph;
  std::optional<Graph> made = remover.run();
  return made ? std::move(*made) : graph;
}

}  // namespace quern
