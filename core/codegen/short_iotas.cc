#include "core/codegen/short_iotas.h"

#include <cmath>

namespace quern {

namespace {

bool is_shorter(const Attrs& whole, const Attrs& small) { return *whole.shape != *small.shape; }

RealTensor strided(const Attrs& whole, const Attrs& small) {
  const size_t axis = small.axis ? static_cast<size_t>((*small.axis)[0]) : 0;
  Ints strides(small.shape->size(), 0);
  strides[axis] = 1;
  const double from = static_cast<double>((*whole.shape)[axis]),
               to = static_cast<double>((*small.shape)[axis]);
  RealTensor elements;
  for_each_offset(*small.shape, strides, 0, [&](int64_t index) {
    elements.push_back(std::floor(static_cast<double>(index) * from / to));
  });
  return elements;
}

}  // namespace

std::vector<RealTensor> iotas_to_inputs(const Graph& whole, Graph& small) {
  std::vector<RealTensor> elements;
  for (size_t id = 0; id < small.nodes.size(); ++id) {
    Node& node = small.nodes[id];
    if (node.code != OpCode::iota || !is_shorter(whole.nodes[id].attrs, node.attrs)) continue;
    elements.push_back(strided(whole.nodes[id].attrs, node.attrs));
    node.code = OpCode::input;
    node.attrs = {};
    node.strides = dense_strides(node.type.shape);
    small.inputs.push_back(static_cast<ValueId>(id));
  }
  return elements;
}

std::vector<RealTensor> iotas_to_inputs(const MuGraph& whole, MuGraph& small) {
  std::vector<RealTensor> elements;
  auto add_input = [&](const Attrs& before, const Attrs& now, const TensorType& type) {
    elements.push_back(strided(before, now));
    const int32_t tensor = static_cast<int32_t>(small.tensors.size());
    small.tensors.push_back({"iota" + std::to_string(tensor), type});
    small.inputs.push_back(tensor);
    return tensor;
  };
  for (size_t k = 0; k < small.kernels.size(); ++k) {
    MuKernel& kernel = small.kernels[k];
    const MuKernel& before = whole.kernels[k];
    if (!kernel.custom && kernel.code == OpCode::iota && is_shorter(before.attrs, kernel.attrs)) {
      const TensorType& type = small.tensors[static_cast<size_t>(kernel.result)].type;
      kernel.operands = {add_input(before.attrs, kernel.attrs, TensorType(type))};
      kernel.code = OpCode::reshape;
      kernel.attrs = {};
      kernel.attrs.shape = small.tensors[static_cast<size_t>(kernel.result)].type.shape;
    }
    for (size_t i = 0; i < kernel.ops.size(); ++i) {
      BlockOp& op = kernel.ops[i];
      if (op.kind != BlockOp::Kind::compute || op.code != OpCode::iota ||
          !is_shorter(before.ops[i].attrs, op.attrs))
        continue;
      op.tensor = add_input(before.ops[i].attrs, op.attrs, op.type);
      op.kind = BlockOp::Kind::load;
    }
  }
  return elements;
}

}  // namespace quern
