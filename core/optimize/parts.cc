#include "core/optimize/parts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/base/facts.h"
#include "core/graph/builder.h"
#include "core/lang/attrs.h"
#include "core/mugraph/edit.h"
#include "core/verify/verifier.h"

namespace quern {

namespace {

Status unsupported(std::string message) { return Status(ErrorCode::UNSUPPORTED, std::move(message)); }

using Tensors = std::set<int32_t>;

Tensors read_by(const MuKernel& kernel) {
  Tensors read(kernel.operands.begin(), kernel.operands.end());
  for (const BlockOp& op : kernel.ops)
    if (op.is_load()) read.insert(op.tensor());
  return read;
}

Tensors written_by(const MuKernel& kernel) {
  Tensors written;
  if (!kernel.custom) written.insert(kernel.result);
  for (const BlockOp& op : kernel.ops)
    if (op.is_store()) written.insert(op.tensor());
  return written;
}

class Partition {
 public:
  Partition(const Graph& graph, const MuGraph& mugraph) : graph_(graph), mugraph_(mugraph) {
    for (size_t id = 0; id < graph.nodes.size(); ++id)
      value_of_[graph.nodes[id].name] = static_cast<ValueId>(id);
  }

  Result<std::vector<Part>> run() {
    std::vector<Part> parts;
    for (const std::vector<size_t>& kernels : groups()) {
      Result<Part> part = part_of(kernels);
      if (!part) return part.status();
      parts.push_back(std::move(*part));
    }
    return parts;
  }

 private:
  const MuTensor& tensor(int32_t id) const { return mugraph_.tensors[static_cast<size_t>(id)]; }

  // -1: it is none of the graph.
  ValueId value_of(int32_t id) const {
    const auto at = value_of_.find(tensor(id).name);
    if (at == value_of_.end() || tensor(id).type.literal) return -1;
    const TensorType &own = tensor(id).type, &type = graph_.node(at->second).type;
    return type.shape == own.shape && type.dtype == own.dtype ? at->second : -1;
  }

  // Kernels that tensors of the muGraph's own connect.
  std::vector<std::vector<size_t>> groups() const {
    std::vector<size_t> group(mugraph_.kernels.size());
    std::iota(group.begin(), group.end(), size_t{0});
    auto find = [&](size_t kernel) {
      while (group[kernel] != kernel) kernel = group[kernel];
      return kernel;
    };
    std::map<int32_t, size_t> writer;
    for (size_t k = 0; k < mugraph_.kernels.size(); ++k) {
      for (int32_t id : read_by(mugraph_.kernels[k]))
        if (const auto at = writer.find(id); at != writer.end() && value_of(id) < 0) {
          const size_t a = find(k), b = find(at->second);
          group[std::max(a, b)] = std::min(a, b);
        }
      for (int32_t id : written_by(mugraph_.kernels[k])) writer[id] = k;
    }
    std::map<size_t, std::vector<size_t>> members;
    for (size_t k = 0; k < group.size(); ++k) members[find(k)].push_back(k);
    std::vector<std::vector<size_t>> all;
    for (auto& [first, kernels] : members) all.push_back(std::move(kernels));
    return all;
  }

  // What a mean divides by may be named by a tensor of another part, with which it would not shrink: the same extent of what the
  // kernel reads, along the last dimension that has it.
  void name_extents_within(MuKernel& kernel, const Tensors& read, const Tensors& written) const {
    const Tensors own = read_by(kernel);
    auto name_within = [&](TensorDim& named) {
      const int64_t extent = tensor(named.tensor).type.shape[static_cast<size_t>(named.dim)];
      for (int32_t id : own)
        for (size_t dim = tensor(id).type.shape.size(); dim-- > 0;)
          if (tensor(id).type.shape[dim] == extent) {
            named = {id, static_cast<int>(dim)};
            return;
          }
    };
    for (BlockOp& op : kernel.ops)
      if (op.is_compute())
        for (TensorDim& named : op.compute().extents)
          if (!read.count(named.tensor) && !written.count(named.tensor)) name_within(named);
  }

  bool is_needed_outside(int32_t id, const std::vector<size_t>& kernels) const {
    if (std::find(mugraph_.outputs.begin(), mugraph_.outputs.end(), id) != mugraph_.outputs.end())
      return true;
    for (size_t k = 0; k < mugraph_.kernels.size(); ++k)
      if (std::find(kernels.begin(), kernels.end(), k) == kernels.end() &&
          read_by(mugraph_.kernels[k]).count(id))
        return true;
    return false;
  }

  // The kernels in front of `wanted` tensors that are made of nothing but positions and numbers.
  std::vector<size_t> without_inputs(Tensors wanted) const {
    Tensors made;
    for (const MuKernel& kernel : mugraph_.kernels) {
      const Tensors read = read_by(kernel);
      if (std::all_of(read.begin(), read.end(),
                      [&](int32_t id) { return made.count(id) || tensor(id).type.literal; }))
        made.merge(written_by(kernel));
    }
    std::vector<size_t> kernels;
    for (size_t k = mugraph_.kernels.size(); k-- > 0;) {
      const Tensors written = written_by(mugraph_.kernels[k]);
      if (std::none_of(written.begin(), written.end(),
                       [&](int32_t id) { return made.count(id) && wanted.count(id); }))
        continue;
      wanted.merge(read_by(mugraph_.kernels[k]));
      kernels.push_back(k);
    }
    return kernels;
  }

  Result<Part> part_of(const std::vector<size_t>& kernels) const {
    Tensors read, written, made;
    Part part;
    part.mugraph = mugraph_;
    part.mugraph.kernels.clear();
    for (size_t k : kernels) {
      read.merge(read_by(mugraph_.kernels[k]));
      written.merge(written_by(mugraph_.kernels[k]));
    }
    // What is made of positions is no input: the muGraph may have it where the graph makes the same of others.
    std::set<size_t> all(kernels.begin(), kernels.end());
    for (size_t k : without_inputs(read))
      if (all.insert(k).second) made.merge(written_by(mugraph_.kernels[k]));
    for (size_t k : all) part.mugraph.kernels.push_back(mugraph_.kernels[k]);
    for (MuKernel& kernel : part.mugraph.kernels) name_extents_within(kernel, read, written);
    part.mugraph.inputs.clear();
    part.mugraph.outputs.clear();
    for (int32_t id : read)
      if (!written.count(id) && !made.count(id) && !tensor(id).type.literal)
        part.mugraph.inputs.push_back(id);
    for (int32_t id : written)
      if (is_needed_outside(id, kernels)) part.mugraph.outputs.push_back(id);
    Result<Graph> graph = graph_between(part.mugraph.inputs, part.mugraph.outputs);
    if (!graph) return graph.status();
    part.graph = std::move(*graph);
    drop_unused_tensors(part.mugraph);
    if (Status status = validate(part.mugraph); !status.ok()) return status;
    return part;
  }

  // What the outputs are made of, from the inputs.
  Result<Graph> graph_between(const std::vector<int32_t>& inputs, const std::vector<int32_t>& outputs) const {
    GraphBuilder builder(graph_.name);
    std::vector<ValueId> became(graph_.nodes.size(), -1);
    for (int32_t id : inputs) {
      const ValueId value = value_of(id);
      if (value < 0) return unsupported("\"" + tensor(id).name + "\" is no value of the graph");
      auto added =
          builder.add_input(tensor(id).name, tensor(id).type.dtype, tensor(id).type.shape, {}, false);
      if (!added) return added.status();
      became[value] = *added;
    }
    std::vector<bool> needed(graph_.nodes.size(), false);
    for (int32_t id : outputs) {
      if (value_of(id) < 0) return unsupported("\"" + tensor(id).name + "\" is no value of the graph");
      needed[value_of(id)] = true;
    }
    for (size_t id = graph_.nodes.size(); id-- > 0;)
      if (needed[id] && became[id] < 0)
        for (ValueId operand : graph_.nodes[id].operands) needed[operand] = true;
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!needed[id] || became[id] >= 0) continue;
      const Node& node = graph_.nodes[id];
      if (node.code == OpCode::input) return unsupported("a part does not read \"" + node.name + "\"");
      std::vector<ValueId> operands;
      for (ValueId operand : node.operands) operands.push_back(became[operand]);
      auto added = node.code == OpCode::constant
                       ? builder.add_constant(node.number, node.type.dtype == DType::i32)
                       : builder.add_op(node.code, operands, node.attrs, node.name);
      if (!added) return added.status();
      became[id] = *added;
    }
    for (int32_t id : outputs)
      if (Status status = builder.add_output(became[value_of(id)]); !status.ok()) return status;
    return builder.finish();
  }

  static void drop_unused_tensors(MuGraph& mugraph) {
    Tensors used(mugraph.inputs.begin(), mugraph.inputs.end());
    for (const MuKernel& kernel : mugraph.kernels) {
      used.merge(read_by(kernel));
      used.merge(written_by(kernel));
      for (const BlockOp& op : kernel.ops) for_each_tensor(op, [&](int32_t id) { used.insert(id); });
    }
    std::vector<MuTensor> tensors;
    std::vector<int32_t> became(mugraph.tensors.size(), -1);
    for (int32_t id : used) {
      became[static_cast<size_t>(id)] = static_cast<int32_t>(tensors.size());
      tensors.push_back(mugraph.tensors[static_cast<size_t>(id)]);
    }
    auto rename = [&](int32_t& id) { id = became[static_cast<size_t>(id)]; };
    mugraph.tensors = std::move(tensors);
    for (int32_t& id : mugraph.inputs) rename(id);
    for (int32_t& id : mugraph.outputs) rename(id);
    for (MuKernel& kernel : mugraph.kernels) {
      for (int32_t& id : kernel.operands) rename(id);
      if (!kernel.custom) rename(kernel.result);
      for (BlockOp& op : kernel.ops) for_each_tensor(op, rename);
    }
  }

  const Graph& graph_;
  const MuGraph& mugraph_;
  std::map<std::string, ValueId> value_of_;
};

}  // namespace

Result<std::vector<Part>> parts_of(const Graph& graph, const MuGraph& mugraph) {
  return Partition(graph, mugraph).run();
}

Result<std::vector<Certificate>> verify_parts(const Graph& graph, const MuGraph& mugraph, uint64_t seed) {
  const Result<std::vector<Part>> parts = parts_of(graph, mugraph);
  if (!parts) return parts.status();
  if (parts->size() < 2) return unsupported("it is one part");
  VerifyOptions options;
  options.seed = seed;
  std::vector<Certificate> certificates;
  for (const Part& part : *parts) certificates.push_back(verify(part.graph, part.mugraph, options));
  return certificates;
}

std::string part_facts(const Result<std::vector<Certificate>>& parts) {
  if (!parts) return print_fact("parts", "none: " + parts.status().message());
  std::string facts = print_fact("parts", std::to_string(parts->size()));
  for (size_t i = 0; i < parts->size(); ++i) {
    const Certificate& part = (*parts)[i];
    facts += print_fact("part " + std::to_string(i), std::string(verdict_name(part.verdict)) +
                                                         (part.reason.empty() ? "" : ", " + part.reason) +
                                                         "; error bound " + print_number(part.error_bound));
  }
  return facts;
}

}  // namespace quern
