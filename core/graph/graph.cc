#include "core/graph/graph.h"

namespace quern {

std::vector<TensorType> Graph::operand_types(const Node& node) const {
  std::vector<TensorType> types;
  for (ValueId operand : node.operands) types.push_back(this->node(operand).type);
  return types;
}

std::vector<TensorDesc> Graph::input_descs() const {
  std::vector<TensorDesc> descs;
  for (ValueId id : inputs)
    descs.push_back({node(id).name, node(id).type.dtype, node(id).type.shape, node(id).strides});
  return descs;
}

std::vector<TensorDesc> Graph::output_descs() const {
  std::vector<TensorDesc> descs;
  for (ValueId id : outputs)
    descs.push_back(
        {node(id).name, node(id).type.dtype, node(id).type.shape, dense_strides(node(id).type.shape)});
  return descs;
}

}  // namespace quern
