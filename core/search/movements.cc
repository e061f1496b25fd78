#include "core/search/movements.h"

#include "core/base/dtype_info.h"
#include "core/search/rewriter.h"
#include "core/search/terms.h"

namespace quern {

namespace {

class MovementRewriter : CopyingRewriter {
 public:
  explicit MovementRewriter(const Graph& graph)
      : CopyingRewriter(graph), readers_(readers()), narrow_(graph.nodes.size(), -1) {}

  // Nothing if no movement changes, or what is made is too large for a graph.
  std::optional<Graph> run() {
    for (ValueId id = 0; id < end(); ++id)
      if (narrows(id))
        for (ValueId from = node(id).operands[0]; moves_alone(from); from = node(from).operands[0])
          waits_.insert(from);
    std::optional<Graph> made = rewritten([&](ValueId id) { return value_of(id); });
    return found_ ? std::move(made) : std::nullopt;
  }

 private:
  bool moves(ValueId id) const {
    return op_info(node(id).code).kind == OpKind::movement && node(id).operands.size() == 1;
  }
  // A movement that one operator reads, of a value that nobody else does.
  bool moves_alone(ValueId id) const {
    return moves(id) && readers_[index(id)].size() == 1 && !is_output(id) &&
           node(id).type.dtype == DType::f32 && readers_[index(node(id).operands[0])].size() == 1 &&
           !is_output(node(id).operands[0]) && !is_exact_cast(graph_, node(id).operands[0]) &&
           node(node(id).operands[0]).code != OpCode::input;
  }
  bool narrows(ValueId id) const {
    return node(id).code == OpCode::cast && is_narrow(node(id).type.dtype) &&
           moves_alone(node(id).operands[0]);
  }

  // -1 for what moves behind the cast that reads it.
  ValueId value_of(ValueId id) {
    const Node& op = node(id);
    if (waits_.count(id)) return -1;
    if (narrows(id)) return narrowed(id);
    if (is_exact_cast(graph_, id) && node(op.operands[0]).type.dtype != DType::f32)
      narrow_[index(id)] = became(op.operands[0]);
    if (!moves(id) || narrow_[index(op.operands[0])] < 0) return copy(id);
    found_ = true;
    narrow_[index(id)] =
        add(op.code, {narrow_[index(op.operands[0])]}, op.attrs, unused(op.name + "_narrow"));
    return cast(narrow_[index(id)], op.type.dtype, op.name);
  }

  // The cast of what the movements in front of it move, and then these.
  ValueId narrowed(ValueId id) {
    found_ = true;
    std::vector<ValueId> movements;
    ValueId from = node(id).operands[0];
    for (; waits_.count(from); from = node(from).operands[0]) movements.push_back(from);
    ValueId value = cast(became(from), node(id).type.dtype, unused(node(id).name + "_narrow"));
    for (auto at = movements.rbegin(); at != movements.rend(); ++at)
      value = add(node(*at).code, {value}, node(*at).attrs,
                  *at == movements.front() ? node(id).name : unused(node(*at).name + "_narrow"));
    return value;
  }

  ValueId cast(ValueId value, DType dtype, const std::string& name) {
    Attrs attrs;
    attrs.dtype = dtype;
    return add(OpCode::cast, {value}, attrs, name);
  }

  std::vector<std::set<ValueId>> readers_;
  std::set<ValueId> waits_;
  std::vector<ValueId> narrow_;  // what is moved in 16 bits, of which the value is a cast; -1: nothing
  bool found_ = false;
};

}  // namespace

Graph narrow_movements(const Graph& graph) {
  std::optional<Graph> made = MovementRewriter(graph).run();
  return made ? std::move(*made) : graph;
}

}  // namespace quern
