#include "core/search/cuts.h"

#include <algorithm>

#include "core/search/tiles.h"

namespace quern {

namespace {

double elements(const Dims& dims, const Terms& terms) {
  double count = 1;
  for (Label label : dims)
    if (label >= 0) count *= static_cast<double>(terms.labels[label].extent);
  return count;
}

// The part of `dag` that computes `wanted`, with the values of `given` read from tensors.
KernelDag extract(const Dag& dag, const std::vector<int>& wanted, std::vector<int> stores,
                  const std::vector<std::pair<int, int>>& given) {
  std::vector<bool> needed(dag.ops.size());
  auto tensor_of = [&](int at) {
    for (const auto& [value, tensor] : given)
      if (value == at) return tensor;
    return -1;
  };
  for (int at : wanted) needed[at] = true;
  for (size_t at = dag.ops.size(); at-- > 0;)
    if (needed[at] && tensor_of(static_cast<int>(at)) < 0)
      for (int operand : dag.ops[at].operands) needed[operand] = true;
  KernelDag kernel;
  std::vector<int> became(dag.ops.size(), -1);
  for (size_t at = 0; at < dag.ops.size(); ++at) {
    if (!needed[at]) continue;
    DagOp op = dag.ops[at];
    if (const int tensor = tensor_of(static_cast<int>(at)); tensor >= 0) {
      op.term = BlockTerm();
      op.term.code = OpCode::input;
      op.term.index = tensor;
      op.operands.clear();
    }
    for (int& operand : op.operands) operand = became[operand];
    became[at] = static_cast<int>(kernel.dag.ops.size());
    kernel.dag.ops.push_back(std::move(op));
  }
  for (int at : wanted) kernel.dag.outputs.push_back(became[at]);
  kernel.stores = std::move(stores);
  return kernel;
}

bool is_trivial(const DagOp& op) {
  return op.term.kind == BlockKind::leaf || op.term.kind == BlockKind::constant;
}

}  // namespace

std::vector<Cut> kernel_cuts(const Dag& dag, const Terms& terms, size_t most) {
  std::vector<Dims> tensors = terms.inputs;
  tensors.insert(tensors.end(), terms.goal_dims.begin(), terms.goal_dims.end());
  const int first_output = static_cast<int>(terms.inputs.size());
  std::vector<int> stores;
  double most_elements = 0;
  for (const Dims& dims : tensors) most_elements += elements(dims, terms);
  for (size_t i = 0; i < dag.outputs.size(); ++i) stores.push_back(first_output + static_cast<int>(i));
  std::vector<Cut> cuts = {{{extract(dag, dag.outputs, stores, {})}, tensors, 0}};
  const std::vector<TileDims> dims = tile_dims(dag, tensors, terms.goal_dims, terms);
  std::vector<Cut> in_two;
  for (size_t at = 0; at < dag.ops.size(); ++at) {
    const int value = static_cast<int>(at);
    if (is_trivial(dag.ops[at])) continue;
    const auto goal = std::find(dag.outputs.begin(), dag.outputs.end(), value);
    const bool is_output = goal != dag.outputs.end();
    Cut cut{{}, tensors, 0};
    int tensor = static_cast<int>(tensors.size());
    if (is_output) {
      tensor = first_output + static_cast<int>(goal - dag.outputs.begin());
    } else {
      cut.tensors.push_back(dims[at].result);
      cut.handed_on = dtype_between_kernels(terms, dag.ops[at].id);
    }
    std::vector<int> rest, rest_stores;
    for (size_t i = 0; i < dag.outputs.size(); ++i)
      if (stores[i] != tensor) {
        rest.push_back(dag.outputs[i]);
        rest_stores.push_back(stores[i]);
      }
    if (rest.empty()) continue;
    const double count = elements(cut.tensors[tensor], terms);
    cut.traffic = 2 * static_cast<double>(dtype_size(cut.handed_on)) * count;
    if (count > most_elements) continue;
    cut.kernels = {extract(dag, {value}, {tensor}, {}), extract(dag, rest, rest_stores, {{value, tensor}})};
    // A second kernel that only copies what it is given is none.
    if (is_trivial(cut.kernels[1].dag.ops[cut.kernels[1].dag.outputs[0]])) continue;
    in_two.push_back(std::move(cut));
  }
  std::stable_sort(in_two.begin(), in_two.end(),
                   [](const Cut& a, const Cut& b) { return a.traffic < b.traffic; });
  for (Cut& cut : in_two)
    if (cuts.size() < most) cuts.push_back(std::move(cut));
  return cuts;
}

std::vector<double> element_bytes(const Graph& graph, const std::vector<bool>& numbered, const Cut& cut) {
  std::vector<double> bytes;
  for (const auto* values : {&graph.inputs, &graph.outputs})
    for (ValueId id : *values) bytes.push_back(static_cast<double>(dtype_size(graph.node(id).type.dtype)));
  for (size_t i = 0; i < numbered.size(); ++i)
    if (numbered[i]) bytes[i] = 0;
  bytes.resize(cut.tensors.size(), static_cast<double>(dtype_size(cut.handed_on)));
  return bytes;
}

}  // namespace quern
