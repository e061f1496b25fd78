#include "core/mugraph/positions.h"

namespace quern {

namespace {

constexpr int64_t kMostIntegers = 4096;

uint32_t bit_of(int64_t dim, int rank) { return 1u << (rank - 1 - dim); }

uint32_t transposed(uint32_t bits, const Ints& perm) {
  const int rank = static_cast<int>(perm.size());
  uint32_t out = 0;
  for (int64_t d = 0; d < rank; ++d)
    if (bits & bit_of(perm[static_cast<size_t>(d)], rank)) out |= bit_of(d, rank);
  return out;
}

}  // namespace

std::optional<MadeOfPositions> made_by(OpCode code, const Attrs& attrs, int rank,
                                       const std::vector<std::optional<MadeOfPositions>>& operands) {
  MadeOfPositions out;
  if (code == OpCode::iota) {
    out.positions = bit_of((*attrs.axis)[0], rank);
    return out;
  }
  if (code == OpCode::constant) {
    out.operators = 0;
    return out;
  }
  if (code == OpCode::broadcast) out.operators = 0;  // elementwise operators repeat by themselves
  else if (op_info(code).kind != OpKind::elementwise && code != OpCode::cast && code != OpCode::transpose)
    return std::nullopt;
  for (const auto& operand : operands) {
    if (!operand) return std::nullopt;
    out.operators += operand->operators;
    out.positions |= operand->positions;
    out.integers |= operand->integers;
    out.reads |= operand->reads;
  }
  if (code == OpCode::transpose) {
    out.positions = transposed(out.positions, *attrs.perm);
    out.integers = transposed(out.integers, *attrs.perm);
  }
  return out;
}

std::optional<MadeOfPositions> made_of_integers(DType dtype, const Ints& shape) {
  int64_t count = 1;
  MadeOfPositions out;
  out.reads = true;
  for (size_t d = 0; d < shape.size(); ++d) {
    count *= shape[d];
    if (shape[d] != 1) out.integers |= bit_of(static_cast<int64_t>(d), static_cast<int>(shape.size()));
  }
  if (dtype != DType::i32 || count > kMostIntegers) return std::nullopt;
  return out;
}

std::vector<ValueOfPositions> positions_of(const Graph& graph,
                                           const std::function<bool(ValueId)>& is_renamed) {
  std::vector<ValueOfPositions> out;
  for (ValueId id = 0; id < static_cast<ValueId>(graph.nodes.size()); ++id) {
    const Node& node = graph.node(id);
    std::vector<std::optional<MadeOfPositions>> operands;
    for (ValueId operand : node.operands) operands.push_back(out[static_cast<size_t>(operand)].made);
    const bool renames = is_renamed && is_renamed(id) && out[static_cast<size_t>(node.operands[0])].computed;
    const auto made = renames ? operands[0] : made_by(node.code, node.attrs, node.type.rank(), operands);
    out.push_back({made ? made : made_of_integers(node.type.dtype, node.type.shape), made.has_value()});
  }
  return out;
}

}  // namespace quern
