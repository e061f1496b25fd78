#include "core/codegen/block_program.h"

#include "core/graph/decompose.h"

namespace quern {

namespace {

class Lowering {
 public:
  Lowering(const MuGraph& mugraph, const MuKernel& kernel) : mugraph_(mugraph), kernel_(kernel) {}

  BlockProgram run() {
    const std::vector<bool> wanted = find_wanted();
    for (size_t i = 0; i < kernel_.ops.size(); ++i) {
      if (!wanted[i]) {
        numbers_.push_back(-1);
        continue;
      }
      const BlockOp& op = kernel_.ops[i];
      BlockOp copy = op;
      for (BlockValue& operand : copy.operands) operand = numbers_[static_cast<size_t>(operand)];
      const bool composite = op.kind == BlockOp::Kind::compute && op_info(op.code).kind == OpKind::composite;
      numbers_.push_back(composite ? expand(copy) : append(number(std::move(copy))));
    }
    MuKernel lowered;
    lowered.ops = out_.ops;
    out_.stages = block_stages(lowered);
    out_.users.resize(out_.ops.size());
    for (size_t i = 0; i < out_.ops.size(); ++i)
      for (BlockValue operand : out_.ops[i].operands)
        out_.users[static_cast<size_t>(operand)].push_back(static_cast<BlockValue>(i));
    return std::move(out_);
  }

 private:
  // What a store needs.
  std::vector<bool> find_wanted() const {
    std::vector<bool> wanted(kernel_.ops.size(), false);
    for (size_t i = kernel_.ops.size(); i-- > 0;) {
      wanted[i] = wanted[i] || kernel_.ops[i].kind == BlockOp::Kind::store;
      if (!wanted[i]) continue;
      for (BlockValue operand : kernel_.ops[i].operands) wanted[static_cast<size_t>(operand)] = true;
    }
    return wanted;
  }

  BlockOp number(BlockOp op) const {
    if (op.kind != BlockOp::Kind::compute || op.extents.empty()) return op;
    op.number = 1;
    for (const TensorDim& dim : op.extents)
      op.number *= static_cast<double>(
          mugraph_.tensors[static_cast<size_t>(dim.tensor)].type.shape[static_cast<size_t>(dim.dim)]);
    op.extents.clear();
    return op;
  }

  BlockValue append(BlockOp op) {
    out_.ops.push_back(std::move(op));
    return static_cast<BlockValue>(out_.ops.size()) - 1;
  }

  // The operator as a graph of its own, decomposed.
  BlockValue expand(const BlockOp& op) {
    Graph graph;
    Node node;
    node.code = op.code;
    node.attrs = op.attrs;
    node.type = op.type;
    for (BlockValue operand : op.operands) {
      node.operands.push_back(static_cast<ValueId>(graph.nodes.size()));
      graph.inputs.push_back(node.operands.back());
      Node input;
      input.type = out_.op(operand).type;
      graph.nodes.push_back(std::move(input));
    }
    graph.outputs = {static_cast<ValueId>(graph.nodes.size())};
    graph.nodes.push_back(std::move(node));
    const Graph parts = decompose(graph);
    std::vector<BlockValue> values;
    size_t next = 0;
    for (const Node& part : parts.nodes) {
      if (part.code == OpCode::input) {
        values.push_back(op.operands[next++]);
        continue;
      }
      BlockOp made;
      made.kind = BlockOp::Kind::compute;
      made.code = part.code;
      made.attrs = part.attrs;
      made.number = part.number;
      made.type = part.type;
      made.name = op.name;
      for (ValueId operand : part.operands) made.operands.push_back(values[static_cast<size_t>(operand)]);
      values.push_back(append(std::move(made)));
    }
    return values[static_cast<size_t>(parts.outputs[0])];
  }

  const MuGraph& mugraph_;
  const MuKernel& kernel_;
  BlockProgram out_;
  std::vector<BlockValue> numbers_;
};

}  // namespace

std::vector<int> view_dims(const BlockProgram& program, BlockValue value) {
  const BlockOp& op = program.op(value);
  if (op.kind != BlockOp::Kind::compute || op.operands.size() != 1) return {};
  const Ints& from = program.shape(op.operands[0]);
  std::vector<int> dims(from.size(), -1);
  if (op.code == OpCode::transpose) {
    for (size_t i = 0; i < from.size(); ++i)
      dims[static_cast<size_t>((*op.attrs.perm)[i])] = static_cast<int>(i);
    return dims;
  }
  if (op.code == OpCode::broadcast) {
    for (size_t i = 0; i < from.size(); ++i)
      dims[i] = static_cast<int>(i + op.type.shape.size() - from.size());
    return dims;
  }
  if (op.code != OpCode::reshape) return {};
  size_t to = 0;  // dimensions of extent 1 come and go, the others stay in order
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 1) continue;
    while (to < op.type.shape.size() && op.type.shape[to] == 1) ++to;
    if (to == op.type.shape.size() || op.type.shape[to] != from[i]) return {};
    dims[i] = static_cast<int>(to++);
  }
  return dims;
}

BlockProgram lower_block(const MuGraph& mugraph, const MuKernel& kernel) {
  return Lowering(mugraph, kernel).run();
}

}  // namespace quern
