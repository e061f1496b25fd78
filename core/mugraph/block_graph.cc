#include "core/mugraph/block_graph.h"

namespace quern {

double constant_value(const MuGraph& mugraph, const BlockOp& op) {
  if (op.extents().empty()) return op.number();
  double product = 1;
  for (const TensorDim& dim : op.extents())
    product *= static_cast<double>(
        mugraph.tensors[static_cast<size_t>(dim.tensor)].type.shape[static_cast<size_t>(dim.dim)]);
  return product;
}

Graph block_graph(const MuGraph& mugraph, const MuKernel& kernel) {
  Graph graph;
  graph.name = mugraph.name;
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    const BlockOp& op = kernel.ops[i];
    Node node;
    node.type = op.type;
    node.name = "b" + std::to_string(i);
    if (op.is_compute()) {
      node.code = op.code();
      node.attrs = op.attrs();
      node.keeps_precision = op.keeps_precision;
      node.operands.assign(op.operands.begin(), op.operands.end());
      if (op.code() == OpCode::constant) node.number = constant_value(mugraph, op);
    } else {
      node.strides = dense_strides(node.type.shape);
      graph.inputs.push_back(static_cast<ValueId>(i));
    }
    graph.nodes.push_back(std::move(node));
  }
  return graph;
}

Graph operator_graph(const MuGraph& mugraph, const MuKernel& kernel) {
  Graph graph;
  Node node;
  node.code = kernel.code;
  node.attrs = kernel.attrs;
  node.keeps_precision = kernel.keeps_precision;
  node.type = mugraph.tensors[static_cast<size_t>(kernel.result)].type;
  for (int32_t operand : kernel.operands) {
    const MuTensor& tensor = mugraph.tensors[static_cast<size_t>(operand)];
    Node value;
    value.type = tensor.type;
    node.operands.push_back(static_cast<ValueId>(graph.nodes.size()));
    if (tensor.type.literal) {
      value.code = OpCode::constant;
      value.number = tensor.number;
    } else {
      graph.inputs.push_back(node.operands.back());
    }
    graph.nodes.push_back(std::move(value));
  }
  graph.outputs = {static_cast<ValueId>(graph.nodes.size())};
  graph.nodes.push_back(std::move(node));
  return graph;
}

Attrs attrs_for_tile(const MuKernel& kernel, const BlockOp& op, const Ints& operand_shape) {
  if (op.code() != OpCode::reshape) return op.attrs();
  const Ints& nominal = kernel.ops[static_cast<size_t>(op.operands[0])].type.shape;
  Ints kept, kept_nominal, wanted;
  for (size_t d = 0; d < nominal.size(); ++d)
    if (nominal[d] != 1) {
      kept_nominal.push_back(nominal[d]);
      kept.push_back(operand_shape[d]);
    }
  for (int64_t extent : *op.attrs().shape)
    if (extent != 1) wanted.push_back(extent);
  Attrs attrs = op.attrs();
  if (wanted != kept_nominal) return attrs;
  size_t next = 0;
  for (int64_t& extent : *attrs.shape)
    if (extent != 1) extent = kept[next++];
  return attrs;
}

Dimensions block_dimensions(const MuKernel& kernel, const Graph& block) {
  Dimensions dims(block);
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    const BlockOp& op = kernel.ops[i];
    if (op.is_load() || op.is_compute()) continue;
    const bool joins = op.is_accumulate(Combine::concat);
    for (int d = 0; d < op.type.rank(); ++d)
      if (!joins || d != op.concat_dim())
        dims.join(static_cast<ValueId>(i), static_cast<size_t>(d), op.operands[0], static_cast<size_t>(d));
  }
  return dims;
}

}  // namespace quern
