#include "core/mugraph/kept_casts.h"

#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/graph/decompose.h"

namespace quern {

namespace {

// The muGraph as one graph: what loads and stores hand on is moved, and what is accumulated is summed.
class Flow {
 public:
  explicit Flow(const MuGraph& mugraph) : mugraph_(mugraph), of_tensor_(mugraph.tensors.size(), -1) {
    for (size_t t = 0; t < mugraph.tensors.size(); ++t)
      of_tensor_[t] = add(OpCode::input, {}, mugraph.tensors[t].type.dtype);
    for (const MuKernel& kernel : mugraph.kernels) {
      auto& own = of_ops_.emplace_back();
      if (!kernel.custom) own.push_back(add_library(kernel));
      for (const BlockOp& op : kernel.ops) own.push_back(add_op(op, own));
    }
    for (int32_t tensor : mugraph.outputs) graph_.outputs.push_back(of_tensor_[static_cast<size_t>(tensor)]);
  }

  const Graph& graph() const { return graph_; }
  // An operator of a kernel; of a library operator, it is number 0.
  ValueId of(size_t kernel, size_t op) const { return of_ops_[kernel][op]; }

 private:
  ValueId add(OpCode code, std::vector<ValueId> operands, DType dtype) {
    Node node;
    node.code = code;
    node.operands = std::move(operands);
    node.type.dtype = dtype;
    graph_.nodes.push_back(std::move(node));
    return static_cast<ValueId>(graph_.nodes.size()) - 1;
  }

  ValueId add_library(const MuKernel& kernel) {
    std::vector<ValueId> operands;
    for (int32_t tensor : kernel.operands) operands.push_back(of_tensor_[static_cast<size_t>(tensor)]);
    const size_t result = static_cast<size_t>(kernel.result);
    return of_tensor_[result] = add(kernel.code, std::move(operands), mugraph_.tensors[result].type.dtype);
  }

  ValueId add_op(const BlockOp& op, const std::vector<ValueId>& values) {
    std::vector<ValueId> operands;
    for (BlockValue operand : op.operands) operands.push_back(values[static_cast<size_t>(operand)]);
    if (op.is_load()) operands.push_back(of_tensor_[static_cast<size_t>(op.tensor())]);
    if (op.is_compute()) {
      const DType dtype = multiplied_dtype(op, operands);
      return add(op.code(), std::move(operands), dtype);
    }
    if (op.is_store()) {
      const size_t tensor = static_cast<size_t>(op.tensor());
      return of_tensor_[tensor] =
                 add(OpCode::reshape, std::move(operands), mugraph_.tensors[tensor].type.dtype);
    }
    const bool moves = op.is_load() || op.is_accumulate(Combine::concat);
    return add(moves ? OpCode::reshape : OpCode::reduce_sum, std::move(operands), op.type.dtype);
  }

  // Products of what is rounded and of what need not be are those of the narrower dtype, as the graph has them.
  DType multiplied_dtype(const BlockOp& op, const std::vector<ValueId>& operands) const {
    if (op.is_compute(OpKind::contraction))
      for (ValueId operand : operands)
        if (is_narrow(graph_.node(operand).type.dtype)) return graph_.node(operand).type.dtype;
    return op.type.dtype;
  }

  const MuGraph& mugraph_;
  Graph graph_;
  std::vector<ValueId> of_tensor_;
  std::vector<std::vector<ValueId>> of_ops_;
};

}  // namespace

bool mark_kept_casts(MuGraph& mugraph) {
  const Flow flow(mugraph);
  const std::vector<bool> kept = kept_casts(flow.graph());
  for (size_t k = 0; k < mugraph.kernels.size(); ++k) {
    MuKernel& kernel = mugraph.kernels[k];
    if (!kernel.custom) kernel.keeps_precision = kept[static_cast<size_t>(flow.of(k, 0))];
    for (size_t i = 0; i < kernel.ops.size(); ++i)
      kernel.ops[i].keeps_precision = kept[static_cast<size_t>(flow.of(k, i))];
  }
  return std::find(kept.begin(), kept.end(), true) != kept.end();
}

}  // namespace quern
