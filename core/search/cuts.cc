#include "core/search/cuts.h"

#include <algorithm>
#include <optional>

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

class KernelCutter {
 public:
  KernelCutter(const Dag& dag, const Terms& terms) : dag_(dag), terms_(terms), tensors_(terms.inputs) {
    tensors_.insert(tensors_.end(), terms.goal_dims.begin(), terms.goal_dims.end());
    for (const Dims& dims : tensors_) most_elements_ += elements(dims, terms);
    for (size_t i = 0; i < dag.outputs.size(); ++i) stores_.push_back(tensor_of_output(i));
    dims_ = tile_dims(dag, tensors_, terms.goal_dims, terms);
  }

  Cut whole() const { return {{extract(dag_, dag_.outputs, stores_, {})}, tensors_, 0}; }

  // In two, of which the first hands these values on; nothing if one of them is too large, or nothing is left for the second.
  std::optional<Cut> at(const std::vector<int>& values) const {
    Cut cut{{}, tensors_, 0};
    if (values.size() == 1 && !output_of(values[0]))
      cut.handed_on = dtype_between_kernels(terms_, op(values[0]).id);
    std::vector<std::pair<int, int>> given;
    std::vector<int> tensors, rest, rest_stores;
    for (int value : values) {
      const std::optional<size_t> output = output_of(value);
      tensors.push_back(output ? tensor_of_output(*output) : static_cast<int>(cut.tensors.size()));
      if (!output) cut.tensors.push_back(dims_[static_cast<size_t>(value)].result);
      given.emplace_back(value, tensors.back());
      const double count = elements(cut.tensors[static_cast<size_t>(tensors.back())], terms_);
      cut.traffic += 2 * static_cast<double>(dtype_size(cut.handed_on)) * count;
      if (count > most_elements_) return std::nullopt;
    }
    for (size_t i = 0; i < dag_.outputs.size(); ++i) {
      if (std::find(tensors.begin(), tensors.end(), stores_[i]) != tensors.end()) continue;
      rest.push_back(dag_.outputs[i]);
      rest_stores.push_back(stores_[i]);
    }
    if (rest.empty()) return std::nullopt;
    cut.kernels = {extract(dag_, values, tensors, {}), extract(dag_, rest, rest_stores, given)};
    // A second kernel that only copies what it is given is none.
    if (is_trivial(cut.kernels[1].dag.ops[static_cast<size_t>(cut.kernels[1].dag.outputs[0])]))
      return std::nullopt;
    return cut;
  }

  // What is known only when all of an index has been gone through, and then read by what varies along it, as the maximum
  // and the sum of a softmax are: a kernel that is given all of that can go through the index once more.
  std::vector<int> known_behind(Label label) const {
    std::vector<char> is_behind(dag_.ops.size()), is_read(dag_.ops.size());
    std::vector<int> out;
    for (size_t i = 0; i < dag_.ops.size(); ++i) {
      const DagOp& each = dag_.ops[i];
      const bool varies = has_label(each.labels, label) || reduces(each, label);
      is_behind[i] = reduces(each, label);
      for (int operand : each.operands) {
        const auto from = static_cast<size_t>(operand);
        is_behind[i] |= is_behind[from] && !varies;
        is_read[from] |= varies && is_behind[from];
      }
    }
    for (size_t i = 0; i < dag_.ops.size(); ++i)
      if (is_read[i]) out.push_back(static_cast<int>(i));
    return out;
  }

 private:
  const DagOp& op(int at) const { return dag_.ops[static_cast<size_t>(at)]; }
  int tensor_of_output(size_t output) const { return static_cast<int>(terms_.inputs.size() + output); }
  std::optional<size_t> output_of(int value) const {
    const auto at = std::find(dag_.outputs.begin(), dag_.outputs.end(), value);
    return at == dag_.outputs.end() ? std::nullopt
                                    : std::optional(static_cast<size_t>(at - dag_.outputs.begin()));
  }
  const Dag& dag_;
  const Terms& terms_;
  std::vector<Dims> tensors_;
  std::vector<int> stores_;
  std::vector<TileDims> dims_;
  double most_elements_ = 0;
};

}  // namespace

std::vector<Cut> kernel_cuts(const Dag& dag, const Terms& terms, size_t most) {
  const KernelCutter cutter(dag, terms);
  std::vector<Cut> cuts = {cutter.whole()}, in_two;
  for (size_t at = 0; at < dag.ops.size(); ++at)
    if (!is_trivial(dag.ops[at]))
      if (std::optional<Cut> cut = cutter.at({static_cast<int>(at)})) in_two.push_back(std::move(*cut));
  for (Label label = 0; label < static_cast<Label>(terms.labels.size()); ++label)
    if (const std::vector<int> values = cutter.known_behind(label); values.size() > 1)
      if (std::optional<Cut> cut = cutter.at(values)) in_two.push_back(std::move(*cut));
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
