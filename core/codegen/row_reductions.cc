#include "core/codegen/row_reductions.h"

#include "core/lang/op.h"

namespace quern {

std::optional<int> RowItems::picked_position(ValueId reduction) const {
  const int select = trace.computed(reduction);
  if (!is_compute(select, OpCode::where)) return std::nullopt;
  const Item& otherwise = at(at(select).operands[2]);
  const Node& node = graph.node(reduction);
  if (otherwise.kind != Item::Kind::number ||
      graph.node(otherwise.value).number != reduction_identity(node.code, node.type.dtype))
    return std::nullopt;
  const int condition = at(select).operands[0];
  if (!is_compute(condition, OpCode::eq)) return std::nullopt;
  for (const bool first : {true, false}) {
    const int place = at(condition).operands[first ? 0 : 1], number = at(condition).operands[first ? 1 : 0];
    if (at(place).kind == Item::Kind::iota && at(place).type == DType::i32 && at(place).index == position &&
        at(number).type == DType::i32 && !(at(number).uses & along))
      return number;
  }
  return std::nullopt;
}

std::optional<ValueId> RowItems::maximum_of_numerators(ValueId reduction) const {
  const int term = trace.computed(reduction);
  if (graph.node(reduction).code != OpCode::reduce_sum || !is_compute(term, OpCode::exp)) return std::nullopt;
  const int exponent = at(term).operands[0];
  if (!is_compute(exponent, OpCode::sub)) return std::nullopt;
  const int x = at(exponent).operands[0];
  const Item& most = at(at(exponent).operands[1]);
  const bool is_its_own = most.kind == Item::Kind::held &&
                          graph.node(most.value).code == OpCode::reduce_max &&
                          trace.computed(most.value) == x;
  // What is the same everywhere in the row stands in front of its loops.
  const bool differs = at(x).type == DType::f32 && most.type == DType::f32 && (at(x).uses & along);
  return is_its_own && differs ? std::optional(most.value) : std::nullopt;
}

}  // namespace quern
