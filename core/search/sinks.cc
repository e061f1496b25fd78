#include "core/search/sinks.h"

#include <algorithm>
#include <map>

#include "core/search/rewriter.h"

namespace quern {

namespace {

// A slice that reads one part of a softmax over several.
struct PartOfSoftmax {
  ValueId softmax = -1;
  std::vector<ValueId> parts;  // what is concatenated
  size_t part = 0;             // which of them is read
  int64_t axis = 0;
  std::vector<DType> casts_in;   // in front of the softmax, in the order of the program
  std::vector<DType> casts_out;  // and behind it
};

class SinkRemover : CopyingRewriter {
 public:
  explicit SinkRemover(const Graph& graph) : CopyingRewriter(graph) {}

  // Nothing if there is no such softmax, or what is made is too large for a graph.
  std::optional<Graph> run() {
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.nodes.size()); ++id)
      if (auto found = find(id)) found_.emplace(id, std::move(*found));
    if (found_.empty()) return std::nullopt;
    return rewritten([this](ValueId id) {
      const auto at = found_.find(id);
      return at == found_.end() ? copy(id) : written_out(at->second, node(id).name);
    });
  }

 private:
  ValueId through_casts(ValueId id, std::vector<DType>& casts) const {
    for (; node(id).code == OpCode::cast; id = node(id).operands[0])
      casts.insert(casts.begin(), node(id).type.dtype);
    return id;
  }

  // What the maximum along the axis is taken off from, as models do in front of a softmax, which does it anyway.
  ValueId unshifted(ValueId id, int64_t axis) const {
    if (node(id).code != OpCode::sub) return id;
    const ValueId value = node(id).operands[0];
    const Node& shift = node(node(id).operands[1]);
    const bool is_maximum = shift.code == OpCode::reduce_max && shift.operands[0] == value &&
                            *shift.attrs.axis == Ints{axis} && shift.attrs.keepdims.value_or(false);
    return is_maximum ? value : id;
  }

  std::optional<PartOfSoftmax> find(ValueId id) const {
    const Node& slice = node(id);
    if (slice.code != OpCode::slice) return std::nullopt;
    PartOfSoftmax out;
    out.softmax = through_casts(slice.operands[0], out.casts_out);
    const Node& softmax = node(out.softmax);
    if (softmax.code != OpCode::softmax || softmax.attrs.axis->size() != 1) return std::nullopt;
    out.axis = softmax.attrs.axis->front();
    ValueId from = unshifted(softmax.operands[0], out.axis);
    for (ValueId next; (next = unshifted(through_casts(from, out.casts_in), out.axis)) != from;) from = next;
    if (node(from).code != OpCode::concat || node(from).attrs.axis->front() != out.axis) return std::nullopt;
    out.parts = node(from).operands;
    for (int64_t first = 0; out.part < out.parts.size(); ++out.part) {
      const int64_t last = first + extent(out, out.part);
      if (is_slice(slice, softmax.type.shape, static_cast<size_t>(out.axis), first, last)) break;
      first = last;
    }
    if (out.part == out.parts.size() || !reads_only(out.softmax, slice.attrs)) return std::nullopt;
    return out;
  }

  // Of a part along the axis.
  int64_t extent(const PartOfSoftmax& what, size_t part) const {
    return node(what.parts[part]).type.shape[static_cast<size_t>(what.axis)];
  }

  static bool is_slice(const Node& slice, const Ints& shape, size_t axis, int64_t first, int64_t last) {
    bool is = true;
    for (size_t d = 0; d < shape.size(); ++d)
      is = is && (*slice.attrs.step)[d] == 1 && (*slice.attrs.start)[d] == (d == axis ? first : 0) &&
           (*slice.attrs.stop)[d] == (d == axis ? last : shape[d]);
    return is;
  }

  // Whether all that is read of a value, behind casts too, is one slice.
  bool reads_only(ValueId value, const Attrs& slice) const {
    if (std::find(graph_.outputs.begin(), graph_.outputs.end(), value) != graph_.outputs.end()) return false;
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.nodes.size()); ++id) {
      const Node& user = node(id);
      if (std::find(user.operands.begin(), user.operands.end(), value) == user.operands.end()) continue;
      const bool same = user.code == OpCode::slice && user.attrs == slice;
      if (!same && !(user.code == OpCode::cast && reads_only(id, slice))) return false;
    }
    return true;
  }

  ValueId add(OpCode code, const std::vector<ValueId>& operands, const Attrs& attrs = {},
              const std::string& name = "") {
    const std::string own = name.empty() ? unused("of_sinks_" + std::to_string(next_name_++)) : name;
    return CopyingRewriter::add(code, operands, attrs, own);
  }
  ValueId cast(ValueId value, DType dtype, const std::string& name = "") {
    Attrs attrs;
    attrs.dtype = dtype;
    return add(OpCode::cast, {value}, attrs, name);
  }
  // Of what a part has along the axis.
  ValueId reduced(OpCode code, ValueId value, const PartOfSoftmax& what, size_t part) {
    if (extent(what, part) == 1) return value;
    Attrs attrs;
    attrs.axis = Ints{what.axis};
    attrs.keepdims = true;
    return add(code, {value}, attrs);
  }

  // A part in f32, as a softmax has it, and not repeated along other dimensions than its own.
  ValueId operand(const PartOfSoftmax& what, size_t part) {
    ValueId id = what.parts[part];
    if (part != what.part && extent(what, part) == 1)
      while (node(id).code == OpCode::broadcast) id = node(id).operands[0];
    ValueId out = became(id);
    for (DType dtype : what.casts_in) out = cast(out, dtype);
    return builder_.graph().node(out).type.dtype == DType::f32 ? out : cast(out, DType::f32);
  }

  ValueId written_out(const PartOfSoftmax& what, const std::string& name) {
    std::vector<ValueId> values;
    for (size_t part = 0; part < what.parts.size(); ++part) values.push_back(operand(what, part));
    ValueId all = values[what.part];
    for (size_t part = 0; part < values.size(); ++part)
      if (part != what.part)
        all = add(OpCode::max, {all, reduced(OpCode::reduce_max, values[part], what, part)});
    const ValueId largest = reduced(OpCode::reduce_max, all, what, what.part);
    auto exponentials = [&](size_t part) {
      return add(OpCode::exp, {add(OpCode::sub, {values[part], largest})});
    };
    const ValueId numerators = exponentials(what.part);
    ValueId sum = reduced(OpCode::reduce_sum, numerators, what, what.part);
    for (size_t part = 0; part < values.size(); ++part)
      if (part != what.part)
        sum = add(OpCode::add, {sum, reduced(OpCode::reduce_sum, exponentials(part), what, part)});
    std::vector<DType> casts = what.casts_out;
    if (const DType own = node(what.softmax).type.dtype; own != DType::f32) casts.insert(casts.begin(), own);
    ValueId out = add(OpCode::div, {numerators, sum}, {}, casts.empty() ? name : "");
    for (size_t i = 0; i < casts.size(); ++i) out = cast(out, casts[i], i + 1 == casts.size() ? name : "");
    return out;
  }

  std::map<ValueId, PartOfSoftmax> found_;  // by slice
  int next_name_ = 0;
};

}  // namespace

Graph without_sinks(const Graph& graph) {
  std::optional<Graph> made = SinkRemover(graph).run();
  return made ? std::move(*made) : graph;
}

}  // namespace quern
