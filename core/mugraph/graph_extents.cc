#include "core/mugraph/graph_extents.h"

namespace quern {

Ints GraphExtents::shape(ValueId id) const {
  Ints shape;
  for (size_t d = 0; d < graph_.node(id).type.shape.size(); ++d) shape.push_back(extents_.value(var(id, d)));
  return shape;
}

void GraphExtents::prefer_sums(int64_t terms) const {
  for (const Node& node : graph_.nodes) {
    const OpKind kind = op_info(node.code).kind;
    if (kind != OpKind::contraction && kind != OpKind::reduction) continue;
    const int64_t last = static_cast<int64_t>(graph_.node(node.operands[0]).type.shape.size()) - 1;
    const Ints axes = kind == OpKind::contraction ? Ints{last} : *node.attrs.axis;
    for (int64_t axis : axes) extents_.prefer(var(node.operands[0], static_cast<size_t>(axis)), terms);
  }
}

void GraphExtents::collect_counted(std::set<Var>& counted) const {
  for (size_t id = 0; id < graph_.nodes.size(); ++id)
    if (graph_.nodes[id].code == OpCode::iota) counted.insert(extents_.root(axis(static_cast<ValueId>(id))));
}

void GraphExtents::collect_cuts(const std::set<Var>& counted, std::map<Var, std::set<int64_t>>& cuts) const {
  for (size_t id = 0; id < graph_.nodes.size(); ++id) {
    const Node& node = graph_.nodes[id];
    if (node.code == OpCode::concat) {
      const Var whole = extents_.root(axis(static_cast<ValueId>(id)));
      int64_t at = 0;
      for (ValueId operand : node.operands) {
        at += graph_.node(operand).type.shape[static_cast<size_t>(node.attrs.axis->front())];
        if (counted.count(whole)) cuts[whole].insert(at);
      }
    }
    if (node.code != OpCode::slice) continue;
    for (size_t d = 0; d < node.type.shape.size(); ++d) {
      if (is_whole(graph_, node, d) || keeps_one_a_step(graph_, node, d)) continue;
      const Var whole = extents_.root(var(node.operands[0], d));
      cuts[whole].insert((*node.attrs.start)[d]);
      cuts[whole].insert((*node.attrs.stop)[d]);
      if ((*node.attrs.step)[d] == 1) continue;
      extents_.keep(whole);
      extents_.keep(var(static_cast<ValueId>(id), d));
    }
  }
}

void GraphExtents::relate(const Node& node, ValueId id) {
  auto vars = [&](ValueId value, const Ints& dims) {
    std::vector<Var> list;
    for (int64_t d : dims) list.push_back(var(value, static_cast<size_t>(d)));
    return list;
  };
  if (node.code == OpCode::reshape)
    for_each_reshape_group(graph_, node, [&](const Ints& from, const Ints& to) {
      if (from.size() > 1 || to.size() > 1) extents_.reshape(vars(node.operands[0], from), vars(id, to));
    });
  if (node.code == OpCode::slice)
    for (size_t d = 0; d < node.type.shape.size(); ++d) relate_slice(node, id, d);
  if (node.code != OpCode::concat) return;
  const size_t axis = static_cast<size_t>(node.attrs.axis->front());
  std::vector<Var> parts;
  for (ValueId operand : node.operands) parts.push_back(var(operand, axis));
  extents_.follows("concat", parts, var(id, axis));
  extents_.sum(var(id, axis), std::move(parts));
}

void GraphExtents::relate_slice(const Node& slice, ValueId id, size_t d) {
  if (is_whole(graph_, slice, d)) return;
  const Var whole = var(slice.operands[0], d);
  const Attrs& attrs = slice.attrs;
  extents_.follows("slice " + print_ints({(*attrs.start)[d], (*attrs.stop)[d], (*attrs.step)[d]}), {whole},
                   var(id, d));
  if (keeps_one_a_step(graph_, slice, d))
    extents_.product({whole}, {extents_.constant((*attrs.step)[d]), var(id, d)});
}

}  // namespace quern
