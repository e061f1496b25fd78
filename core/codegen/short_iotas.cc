#include "core/codegen/short_iotas.h"

#include <cmath>

namespace quern {

namespace {

bool is_shorter(const Attrs& whole, const Attrs& small) { return *whole.shape != *small.shape; }

void add_positions(const Attrs& whole, const Attrs& small, ShortIotas& to) {
  const size_t axis = small.axis ? static_cast<size_t>((*small.axis)[0]) : 0;
  Ints strides(small.shape->size(), 0);
  strides[axis] = 1;
  const double before = static_cast<double>((*whole.shape)[axis]),
               now = static_cast<double>((*small.shape)[axis]);
  RealTensor in_strides, by_one;
  for_each_offset(*small.shape, strides, 0, [&](int64_t index) {
    by_one.push_back(static_cast<double>(index));
    in_strides.push_back(std::floor(by_one.back() * before / now));
  });
  to.in_strides.push_back(std::move(in_strides));
  to.by_one.push_back(std::move(by_one));
}

}  // namespace

ShortIotas iotas_to_inputs(const Graph& whole, Graph& small) {
  ShortIotas positions;
  for (size_t id = 0; id < small.nodes.size(); ++id) {
    Node& node = small.nodes[id];
    if (node.code != OpCode::iota || !is_shorter(whole.nodes[id].attrs, node.attrs)) continue;
    add_positions(whole.nodes[id].attrs, node.attrs, positions);
    node.code = OpCode::input;
    node.attrs = {};
    node.strides = dense_strides(node.type.shape);
    small.inputs.push_back(static_cast<ValueId>(id));
  }
  return positions;
}

ShortIotas iotas_to_inputs(const MuGraph& whole, MuGraph& small) {
  ShortIotas positions;
  auto add_input = [&](const Attrs& before, const Attrs& now, const TensorType& type) {
    add_positions(before, now, positions);
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
      if (!op.is_compute(OpCode::iota) || !is_shorter(before.ops[i].attrs(), op.attrs())) continue;
      op.become(BlockOp::Load{{add_input(before.ops[i].attrs(), op.attrs(), op.type)}});
    }
  }
  return positions;
}

}  // namespace quern
