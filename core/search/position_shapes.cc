#include "core/search/position_shapes.h"

#include <map>

#include "core/graph/dims.h"
#include "core/mugraph/positions.h"
#include "core/search/rewriter.h"

namespace quern {

namespace {

// For each dimension of a value that is made again that of the value as it was; -1: of extent 1.
using DimMap = std::vector<int>;

class PositionRewriter : CopyingRewriter {
 public:
  explicit PositionRewriter(const Graph& graph)
      : CopyingRewriter(graph),
        positions_(positions_of(graph, [this](ValueId id) { return is_renamed(id); })) {}

  // Nothing if no such reshape is there, or what is made is too large for a graph.
  std::optional<Graph> run() {
    std::optional<Graph> made = rewritten([&](ValueId id) {
      if (node(id).code != OpCode::reshape || !is_computed(id)) return copy(id);
      const DimMap dims = *renamed(id);
      if (!positions_[index(id)].made->is_computed_in_kernels() || !can_make(node(id).operands[0], dims))
        return copy(id);
      found_ = true;
      return value_of(node(id).operands[0], dims, node(id).name);
    });
    return found_ ? std::move(made) : std::nullopt;
  }

 private:
  bool is_computed(ValueId id) const {
    return positions_[index(id)].computed && node(id).code != OpCode::constant;
  }

  bool is_renamed(ValueId id) const {
    return node(id).code == OpCode::reshape && node(node(id).operands[0]).code != OpCode::constant &&
           renamed(id);
  }
  // How extents of 1 come and go with a reshape; nothing if others change.
  std::optional<DimMap> renamed(ValueId reshape) const {
    return renamed_dims(node(node(reshape).operands[0]).type.shape, node(reshape).type.shape);
  }

  // Of operand number `i`, where the value's dimensions are `dims`.
  DimMap of_operand(ValueId id, size_t i, const DimMap& dims) const {
    const Node& op = node(id);
    const TensorType& type = node(op.operands[i]).type;
    const DimMap reshaped = op.code == OpCode::reshape ? *renamed(id) : DimMap();
    DimMap out;
    for (int dim : dims) {
      if (dim >= 0 && op.code == OpCode::transpose)
        dim = static_cast<int>((*op.attrs.perm)[static_cast<size_t>(dim)]);
      else if (dim >= 0 && op.code == OpCode::reshape)
        dim = reshaped[static_cast<size_t>(dim)];
      else if (dim >= 0)
        dim += type.rank() - op.type.rank();
      out.push_back(dim >= 0 && type.shape[static_cast<size_t>(dim)] != 1 ? dim : -1);
    }
    return out;
  }

  // Whether it can be made with these dimensions: an index that there is must be counted along one of them, and what lies in
  // memory keeps its order.
  bool can_make(ValueId id, const DimMap& dims) const {
    const Node& op = node(id);
    if (op.type.rank() == 0) return true;
    if (op.code == OpCode::iota) return axis_of(op, dims).has_value();
    if (!is_computed(id)) {
      DimMap kept = dims;
      std::erase(kept, -1);
      return std::is_sorted(kept.begin(), kept.end());
    }
    for (size_t i = 0; i < op.operands.size(); ++i)
      if (!can_make(op.operands[i], of_operand(id, i, dims))) return false;
    return true;
  }

  // Along which an iota counts: any of extent 1 if it has one index.
  static std::optional<size_t> axis_of(const Node& iota, const DimMap& dims) {
    const auto axis = static_cast<int>((*iota.attrs.axis)[0]);
    auto at = std::find(dims.begin(), dims.end(), axis);
    if (at == dims.end() && iota.type.shape[static_cast<size_t>(axis)] == 1)
      at = std::find(dims.begin(), dims.end(), -1);
    return at == dims.end() ? std::nullopt : std::optional(static_cast<size_t>(at - dims.begin()));
  }

  Ints shape_of(ValueId id, const DimMap& dims) const {
    Ints shape;
    for (int dim : dims) shape.push_back(dim < 0 ? 1 : node(id).type.shape[static_cast<size_t>(dim)]);
    return shape;
  }

  ValueId value_of(ValueId id, const DimMap& dims) {
    if (node(id).type.rank() == 0) return became(id);
    const auto [at, fresh] = values_.try_emplace({id, dims}, 0);
    if (fresh) at->second = value_of(id, dims, unused(node(id).name + "_reshaped"));
    return at->second;
  }
  ValueId value_of(ValueId id, const DimMap& dims, const std::string& name) {
    const Node& op = node(id);
    Attrs attrs = op.attrs;
    if (op.type.rank() == 0 || !is_computed(id)) {
      attrs = {};
      attrs.shape = shape_of(id, dims);
      return add(OpCode::reshape, {became(id)}, attrs, name);
    }
    if (attrs.shape) attrs.shape = shape_of(id, dims);  // of iotas and broadcasts
    if (op.code == OpCode::iota) {
      attrs.axis = Ints{static_cast<int64_t>(*axis_of(op, dims))};
      return add(op.code, {}, attrs, name);
    }
    std::vector<ValueId> operands;
    for (size_t i = 0; i < op.operands.size(); ++i)
      operands.push_back(value_of(op.operands[i], of_operand(id, i, dims)));
    // Transposes and reshapes are in how their operand was made.
    const bool moves = op.code == OpCode::transpose || op.code == OpCode::reshape;
    return moves ? operands[0] : add(op.code, operands, attrs, name);
  }

  const std::vector<ValueOfPositions> positions_;
  std::map<std::pair<ValueId, DimMap>, ValueId> values_;
  bool found_ = false;
};

}  // namespace

Graph reshape_positions(const Graph& graph) {
  std::optional<Graph> made = PositionRewriter(graph).run();
  return made ? std::move(*made) : graph;
}

}  // namespace quern
