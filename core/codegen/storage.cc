#include "core/codegen/storage.h"

namespace quern {

std::map<Storage::Key, int> Storage::find_last_reads(const Partition& partition) {
  std::map<Key, int> last;
  for (size_t k = 0; k < partition.kernels.size(); ++k) {
    const Kernel& kernel = partition.kernels[k];
    for (ValueId value : kernel.reads) last[{value, Width::wide}] = static_cast<int>(k);
    for (ValueId value : kernel.narrow_reads) last[{value, Width::narrow}] = static_cast<int>(k);
  }
  return last;
}

Storage::Storage(const Graph& graph, const Partition& partition) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Slot slot{graph.node(graph.inputs[i]).type.dtype,
                    {LaunchArg::Kind::input, static_cast<int64_t>(i)}};
    slots_[{graph.inputs[i], Width::wide}] = slots_[{graph.inputs[i], Width::narrow}] = slot;
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    outputs_[graph.outputs[i]] = {graph.node(graph.outputs[i]).type.dtype,
                                  {LaunchArg::Kind::output, static_cast<int64_t>(i)}};

  std::vector<Key> keys;
  const std::map<Key, int> last = find_last_reads(partition);
  for (size_t k = 0; k < partition.kernels.size(); ++k)
    for (const auto& [value, role] : partition.kernels[k].makes)
      for (Width width : {Width::wide, Width::narrow}) {
        const auto read = last.find({value, width});
        if (read == last.end()) continue;
        const TensorType& type = graph.node(value).type;
        const DType dtype = width == Width::wide ? register_type(type.dtype) : type.dtype;
        const auto output = outputs_.find(value);
        if (output != outputs_.end() && output->second.dtype == dtype) {
          slots_[{value, width}] = output->second;
          continue;
        }
        slots_[{value, width}] = {dtype, {LaunchArg::Kind::workspace, 0}};
        keys.emplace_back(value, width);
        buffers_.push_back({type.element_count() * static_cast<int64_t>(dtype_size(dtype)),
                            static_cast<int>(k), read->second, kWorkspaceAlignment});
      }
  MemoryPlan plan = plan_memory(buffers_);
  workspace_bytes_ = plan.peak;
  offsets_ = std::move(plan.offsets);
  for (size_t i = 0; i < keys.size(); ++i) slots_.at(keys[i]).arg.value = offsets_[i];
}

const Slot& Storage::source(ValueId value, Width width) const { return slots_.at({value, width}); }

std::vector<Slot> Storage::targets(ValueId value) const {
  std::vector<Slot> slots;
  if (const auto at = outputs_.find(value); at != outputs_.end()) slots.push_back(at->second);
  for (Width width : {Width::wide, Width::narrow})
    if (const auto at = slots_.find({value, width});
        at != slots_.end() && at->second.arg.kind == LaunchArg::Kind::workspace)
      slots.push_back(at->second);
  return slots;
}

}  // namespace quern
