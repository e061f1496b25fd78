#include "core/search/assembly.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/mugraph/edit.h"

namespace quern {

namespace {

// Block graphs that do not depend on each other follow each other, and so do library operators behind them: neighbours may
// share a launch. The level of a kernel is behind those of all that it reads; library operators that read each other have
// one, and views, which are there when their sources are, that of the first that reads them.
class DependenceOrder {
 public:
  explicit DependenceOrder(MuGraph& mugraph) : mugraph_(mugraph) {
    made_.resize(mugraph.tensors.size());
    first_use_.assign(mugraph.tensors.size(), std::numeric_limits<int>::max());
  }

  void run() {
    std::vector<MuKernel>& kernels = mugraph_.kernels;
    std::vector<int> levels;
    for (const MuKernel& kernel : kernels) levels.push_back(level_of(kernel));
    for (size_t k = kernels.size(); k-- > 0;) {
      if (const int use = kernels[k].custom ? -1 : first_use_[static_cast<size_t>(kernels[k].result)];
          is_view(kernels[k]) && use < std::numeric_limits<int>::max())
        levels[k] = use;
      // In front of a block graph, behind those of the level before it.
      visit_reads(kernels[k], [&](int32_t tensor) {
        int& first = first_use_[static_cast<size_t>(tensor)];
        first = std::min(first, levels[k] - kernels[k].custom);
      });
    }
    std::map<std::pair<int, bool>, std::vector<MuKernel>> ordered;
    for (size_t k = 0; k < kernels.size(); ++k)
      ordered[{levels[k], !kernels[k].custom}].push_back(std::move(kernels[k]));
    kernels.clear();
    for (auto& [level, of_level] : ordered)
      for (MuKernel& kernel : of_level) kernels.push_back(std::move(kernel));
  }

 private:
  struct Made {
    int level = -1;
    bool by_custom = true;
  };

  bool is_view(const MuKernel& kernel) const {
    if (kernel.custom) return false;
    const MuTensor& result = mugraph_.tensors[static_cast<size_t>(kernel.result)];
    return result.view.source >= 0 || result.pieced.axis >= 0;
  }

  template <class Visit>
  static void visit_reads(const MuKernel& kernel, const Visit& visit) {
    for (int32_t operand : kernel.operands) visit(operand);
    for (const BlockOp& op : kernel.ops)
      if (op.is_load()) visit(op.tensor());
  }

  int level_of(const MuKernel& kernel) {
    Made own{is_view(kernel) ? -1 : 0, kernel.custom};
    visit_reads(kernel, [&](int32_t tensor) {
      const Made& from = made_[static_cast<size_t>(tensor)];
      if (!is_view(kernel))
        own.level = std::max(own.level, from.level + (own.by_custom || from.by_custom));
      else if (from.level >= own.level)
        own = {from.level, from.by_custom || (from.level == own.level && own.by_custom)};
    });
    if (!kernel.custom) made_[static_cast<size_t>(kernel.result)] = own;
    for (const BlockOp& op : kernel.ops)
      if (op.is_store()) made_[static_cast<size_t>(op.tensor())] = own;
    return std::max(0, own.level);
  }

  MuGraph& mugraph_;
  std::vector<Made> made_;      // by tensor
  std::vector<int> first_use_;  // of it: the last level at which library operators may make it
};

// Whether somebody may find an input reshaped where it lies, as it is dense.
bool is_reshaped_dense(const Graph& graph, ValueId input) {
  const Node& leaf = graph.node(input);
  return (leaf.strides.empty() || leaf.strides == dense_strides(leaf.type.shape)) &&
         std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& user) {
           return user.code == OpCode::reshape && user.operands[0] == input;
         });
}

}  // namespace

MuGraph as_library_kernels(const Piece& piece) {
  const Graph& graph = piece.graph;
  MuGraph mugraph;
  mugraph.name = graph.name;
  std::vector<int32_t> tensor_of(graph.nodes.size(), -1);
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    tensor_of[id] = static_cast<int32_t>(mugraph.tensors.size());
    mugraph.tensors.push_back({node.name, node.type, node.number});
    if (node.code == OpCode::constant) continue;
    if (node.code == OpCode::input) {
      mugraph.inputs.push_back(tensor_of[id]);
      continue;
    }
    MuKernel kernel;
    kernel.code = node.code;
    kernel.attrs = node.attrs;
    kernel.result = tensor_of[id];
    for (ValueId operand : node.operands) kernel.operands.push_back(tensor_of[operand]);
    mugraph.kernels.push_back(std::move(kernel));
  }
  for (ValueId output : graph.outputs) mugraph.outputs.push_back(tensor_of[output]);
  return mugraph;
}

std::string kernel_forms(const MuGraph& mugraph) {
  std::string out;
  auto add = [&](int64_t number) { out += std::to_string(number) + " "; };
  for (const MuKernel& kernel : mugraph.kernels) {
    out += kernel.custom ? "kernel " : "operator ";
    add(static_cast<int>(kernel.code));
    out += kernel.trip_count > 1 ? "loop" : "once";
    out += kernel.grid[3] > 1 ? " cluster\n" : "\n";
    for (const BlockOp& op : kernel.ops) {
      add(static_cast<int>(op.kind()));
      if (op.is_compute()) add(static_cast<int>(op.code()));
      if (op.has_combine()) add(static_cast<int>(op.combine()));
      if (op.has_access()) {
        add(op.loop_dim());
        for (int dim : op.map()) add(dim);
      }
      for (BlockValue operand : op.operands) add(operand);
      out += "\n";
    }
  }
  return out;
}

std::string kernel_loops(const MuGraph& mugraph) {
  std::string out;
  for (const MuKernel& kernel : mugraph.kernels)
    out += !kernel.custom ? "operator\n" : kernel.trip_count > 1 ? "loop\n" : "once\n";
  return out;
}

Result<MuGraph> assemble(const Graph& graph, const std::vector<const Piece*>& pieces,
                         const std::vector<const MuGraph*>& parts) {
  MuGraph whole;
  whole.name = graph.name;
  std::map<ValueId, int32_t> tensor_of;
  std::set<std::string> names;
  auto add_tensor = [&](MuTensor tensor) {
    const std::string name = tensor.name;
    for (int number = 2; !tensor.type.literal && !names.insert(tensor.name).second; ++number)
      tensor.name = name + "_" + std::to_string(number);
    whole.tensors.push_back(std::move(tensor));
    return static_cast<int32_t>(whole.tensors.size()) - 1;
  };
  auto tensor_for = [&](ValueId id) {
    const auto [at, is_new] = tensor_of.try_emplace(id, 0);
    if (is_new) at->second = add_tensor({graph.node(id).name, graph.node(id).type});
    return at->second;
  };
  for (ValueId input : graph.inputs) {
    whole.inputs.push_back(tensor_for(input));
    whole.tensors[static_cast<size_t>(whole.inputs.back())].dense = is_reshaped_dense(graph, input);
  }
  for (const Piece* piece : pieces)
    for (ValueId output : piece->outputs) tensor_for(output);
  for (size_t p = 0; p < pieces.size(); ++p) {
    const MuGraph& part = *parts[p];
    std::vector<int32_t> became(part.tensors.size(), -1);
    for (size_t i = 0; i < part.inputs.size(); ++i) became[part.inputs[i]] = tensor_for(pieces[p]->inputs[i]);
    for (size_t i = 0; i < part.outputs.size(); ++i)
      became[part.outputs[i]] = tensor_for(pieces[p]->outputs[i]);
    for (size_t t = 0; t < part.tensors.size(); ++t)
      if (became[t] < 0) became[t] = add_tensor(part.tensors[t]);
    for (MuKernel kernel : part.kernels) {
      for (int32_t& operand : kernel.operands) operand = became[operand];
      if (!kernel.custom) kernel.result = became[kernel.result];
      for (BlockOp& op : kernel.ops) for_each_tensor(op, [&](int32_t& tensor) { tensor = became[tensor]; });
      whole.kernels.push_back(std::move(kernel));
    }
  }
  for (ValueId output : graph.outputs) {
    if (graph.node(output).code == OpCode::constant)
      return Status(ErrorCode::UNSUPPORTED, "an output is a constant");
    whole.outputs.push_back(tensor_for(output));
  }
  if (Status status = validate(whole); !status.ok()) return status;
  DependenceOrder(whole).run();
  return whole;
}

}  // namespace quern
