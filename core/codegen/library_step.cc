#include "core/codegen/library_step.h"

#include <algorithm>
#include <map>

namespace quern {

namespace {

Status add_node(Graph& graph, OpCode code, std::vector<ValueId> operands, Attrs attrs) {
  Node node;
  node.code = code;
  node.operands = std::move(operands);
  node.attrs = std::move(attrs);
  auto type = infer_type(node.code, graph.operand_types(node), node.attrs);
  if (!type) return type.status();
  node.type = *type;
  graph.nodes.push_back(std::move(node));
  return {};
}

ValueId last_of(const Graph& graph) { return static_cast<ValueId>(graph.nodes.size()) - 1; }

// In memory.
template <class Visit>
void visit_tensors(const MuGraph& mugraph, const MuKernel& kernel, Visit visit) {
  if (!kernel.custom) {
    for (int32_t operand : kernel.operands) visit(operand);
    visit(kernel.result);
  }
  for (const BlockOp& op : kernel.ops)
    if (op.has_access())
      for (int32_t tensor : memory_of(mugraph, op.tensor())) visit(tensor);
}

}  // namespace

std::vector<Step> steps_of(const MuGraph& mugraph) {
  std::vector<Step> steps;
  for (size_t k = 0; k < mugraph.kernels.size(); ++k)
    if (!steps.empty() && !mugraph.kernels[k].custom && !mugraph.kernels[k - 1].custom)
      steps.back().end = k + 1;
    else
      steps.push_back({k, k + 1});
  return steps;
}

std::vector<TensorLife> tensor_lives(const MuGraph& mugraph, const std::vector<Step>& steps) {
  std::vector<TensorLife> lives(mugraph.tensors.size());
  std::vector<bool> wanted(mugraph.tensors.size());
  for (int32_t output : mugraph.outputs) wanted[static_cast<size_t>(output)] = true;
  for (size_t s = steps.size(); s-- > 0;)
    for (size_t k = steps[s].end; k-- > steps[s].first;) {
      const MuKernel& kernel = mugraph.kernels[k];
      if (!kernel.custom && !wanted[static_cast<size_t>(kernel.result)]) continue;
      visit_tensors(mugraph, kernel, [&](int32_t tensor) {
        wanted[static_cast<size_t>(tensor)] = true;
        TensorLife& life = lives[static_cast<size_t>(tensor)];
        if (life.last < 0) life.last = static_cast<int>(s);
        life.first = static_cast<int>(s);
      });
    }
  for (TensorLife& life : lives)
    life.inner = life.first == life.last &&
                 (life.first < 0 || !mugraph.kernels[steps[static_cast<size_t>(life.first)].first].custom);
  for (const auto* given : {&mugraph.inputs, &mugraph.outputs})
    for (int32_t tensor : *given) lives[static_cast<size_t>(tensor)].inner = false;
  return lives;
}

std::vector<int32_t> stored_as_outputs(const MuGraph& mugraph) {
  std::vector<int32_t> out(mugraph.tensors.size(), -1), shaped(mugraph.tensors.size(), -1);
  std::vector<bool> asked(out.size());
  for (int32_t tensor : mugraph.outputs) asked[static_cast<size_t>(tensor)] = true;
  for (const MuKernel& kernel : mugraph.kernels) {
    for (const BlockOp& op : kernel.ops)
      if (op.is_store() && !asked[static_cast<size_t>(op.tensor())])
        shaped[static_cast<size_t>(op.tensor())] = op.tensor();
    if (kernel.custom || kernel.code != OpCode::reshape) continue;
    const int32_t stored = shaped[static_cast<size_t>(kernel.operands[0])];
    if (stored < 0) continue;
    const auto to = static_cast<size_t>(kernel.result);
    shaped[to] = stored;
    if (asked[to] && out[static_cast<size_t>(stored)] < 0 &&
        mugraph.tensors[to].type.dtype == mugraph.tensors[static_cast<size_t>(stored)].type.dtype)
      out[static_cast<size_t>(stored)] = kernel.result;
  }
  return out;
}

ValueId add_input(Graph& graph, DType dtype, const Ints& shape, const Ints& strides,
                  const std::string& name) {
  Node input;
  input.type = {dtype, shape, false};
  input.strides = strides;
  input.name = name;
  const auto id = static_cast<ValueId>(graph.nodes.size());
  graph.inputs.push_back(id);
  graph.nodes.push_back(std::move(input));
  return id;
}

Result<LibraryStep> library_step(const MuGraph& mugraph, const Step& step,
                                 const std::vector<TensorLife>& lives, const std::vector<Ints>& strides) {
  LibraryStep out;
  std::map<int32_t, ValueId> made;
  const std::vector<int32_t> stored = stored_as_outputs(mugraph);
  for (size_t k = step.first; k < step.end; ++k) {
    const MuKernel& kernel = mugraph.kernels[k];
    if (lives[static_cast<size_t>(kernel.result)].first < 0) continue;
    if (std::find(stored.begin(), stored.end(), kernel.result) != stored.end()) continue;
    std::vector<ValueId> operands;
    for (int32_t operand : kernel.operands) {
      const MuTensor& tensor = mugraph.tensors[static_cast<size_t>(operand)];
      const TensorType& type = tensor.type;
      if (type.literal) {
        Node number;
        number.code = OpCode::constant;
        number.type = type;
        number.number = tensor.number;
        out.graph.nodes.push_back(std::move(number));
        operands.push_back(last_of(out.graph));
        continue;
      }
      if (!made.count(operand)) {
        made[operand] = add_input(out.graph, type.dtype, type.shape, strides[static_cast<size_t>(operand)],
                                  "t" + std::to_string(operand));
        out.inputs.push_back(operand);
      }
      operands.push_back(made[operand]);
    }
    if (Status status = add_node(out.graph, kernel.code, operands, kernel.attrs); !status.ok()) return status;
    const DType wanted = mugraph.tensors[static_cast<size_t>(kernel.result)].type.dtype;
    if (out.graph.nodes.back().type.dtype != wanted) {
      Attrs attrs;
      attrs.dtype = wanted;
      if (Status status = add_node(out.graph, OpCode::cast, {last_of(out.graph)}, attrs); !status.ok())
        return status;
    }
    made[kernel.result] = last_of(out.graph);
    if (lives[static_cast<size_t>(kernel.result)].inner) continue;
    out.graph.outputs.push_back(last_of(out.graph));
    out.outputs.push_back(kernel.result);
  }
  return out;
}

}  // namespace quern
