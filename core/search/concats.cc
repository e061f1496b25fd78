#include "core/search/concats.h"

#include <map>

#include "core/search/rewriter.h"

namespace quern {

namespace {

class ConcatRewriter : CopyingRewriter {
 public:
  explicit ConcatRewriter(const Graph& graph) : CopyingRewriter(graph), readers_(readers()) {}

  // Nothing if there is no such concatenation, or what is made is too large for a graph.
  std::optional<Graph> run() {
    for (ValueId id = 0; id < end(); ++id)
      if (const auto part = computed_part(id)) parts_.emplace(id, *part);
    if (parts_.empty()) return std::nullopt;
    std::set<ValueId> moved;
    for (const auto& [id, part] : parts_) moved.insert(node(id).operands[part]);
    return rewritten([&](ValueId id) {
      if (moved.count(id)) return ValueId{-1};  // nobody else reads it
      const auto part = parts_.find(id);
      return part == parts_.end() ? copy(id) : computed_behind(id, part->second);
    });
  }

 private:
  bool lies_in_memory(ValueId id) const {
    return node(id).code == OpCode::input || op_info(node(id).code).kind == OpKind::movement;
  }
  // Of a concatenation of two parts, which one an operator makes that costs next to nothing where its result is not wanted.
  std::optional<size_t> computed_part(ValueId id) const {
    const Node& concat = node(id);
    if (concat.code != OpCode::concat || concat.operands.size() != 2) return std::nullopt;
    for (size_t part : {0, 1}) {
      const ValueId made = concat.operands[part];
      const OpInfo& info = op_info(node(made).code);
      if (info.kind == OpKind::elementwise && info.result == ResultRule::same && info.max_arity == 1 &&
          readers_[index(made)].size() == 1 && !is_output(made) && lies_in_memory(node(made).operands[0]) &&
          lies_in_memory(concat.operands[1 - part]))
        return part;
    }
    return std::nullopt;
  }

  ValueId computed_behind(ValueId id, size_t part) {
    const Node& concat = node(id);
    const Node& made = node(concat.operands[part]);
    std::vector<ValueId> parts = {became(concat.operands[0]), became(concat.operands[1])};
    parts[part] = became(made.operands[0]);
    const ValueId whole = add(OpCode::concat, parts, concat.attrs, unused(concat.name + "_parts"));
    const auto axis = static_cast<size_t>((*concat.attrs.axis)[0]);
    Attrs numbers;
    numbers.shape = Ints(concat.type.shape.size(), 1);
    (*numbers.shape)[axis] = concat.type.shape[axis];
    numbers.axis = concat.attrs.axis;
    const ValueId position = add(OpCode::iota, {}, numbers, unused(concat.name + "_position")),
                  bound = constant(node(concat.operands[0]).type.shape[axis]),
                  first = add(OpCode::lt, {position, bound}, {}, unused(concat.name + "_first")),
                  computed = add(made.code, {whole}, made.attrs, made.name);
    return part == 0 ? add(OpCode::where, {first, computed, whole}, {}, concat.name)
                     : add(OpCode::where, {first, whole, computed}, {}, concat.name);
  }

  const std::vector<std::set<ValueId>> readers_;
  std::map<ValueId, size_t> parts_;
};

}  // namespace

Graph operators_behind_concats(const Graph& graph) {
  std::optional<Graph> made = ConcatRewriter(graph).run();
  return made ? std::move(*made) : graph;
}

}  // namespace quern
