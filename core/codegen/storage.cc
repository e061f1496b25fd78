#include "core/codegen/storage.h"

#include <algorithm>

namespace quern {

namespace {

constexpr int64_t kAlignment = 256;

bool overlap_in_time(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

// The lowest offset at which `interval` fits between the placed ones (by offset) that live when it does.
int64_t lowest_fit(const Lifetime& interval, const std::vector<const Lifetime*>& placed) {
  int64_t offset = 0;
  for (const Lifetime* other : placed) {
    if (!overlap_in_time(interval, *other)) continue;
    if (offset + interval.bytes <= other->offset) break;
    offset = std::max(offset, other->offset + other->bytes);
  }
  return offset;
}

}  // namespace

// Largest first, each at the lowest offset that is free for as long as it is needed.
int64_t plan_memory(std::vector<Lifetime>& intervals) {
  std::vector<Lifetime*> order;
  for (Lifetime& interval : intervals) {
    interval.bytes = (interval.bytes + kAlignment - 1) / kAlignment * kAlignment;
    order.push_back(&interval);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Lifetime* a, const Lifetime* b) { return a->bytes > b->bytes; });
  std::vector<const Lifetime*> placed;
  int64_t size = 0;
  for (Lifetime* interval : order) {
    interval->offset = lowest_fit(*interval, placed);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), interval,
                         [](const Lifetime* a, const Lifetime* b) { return a->offset < b->offset; }),
        interval);
    size = std::max(size, interval->offset + interval->bytes);
  }
  return size;
}

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
        intervals_.push_back({type.element_count() * static_cast<int64_t>(dtype_size(dtype)),
                              static_cast<int>(k), read->second, 0});
      }
  workspace_bytes_ = plan_memory(intervals_);
  for (size_t i = 0; i < keys.size(); ++i) slots_.at(keys[i]).arg.value = intervals_[i].offset;
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
