#include "core/profile/placed_values.h"

#include <algorithm>

#include "core/schedule/memory_plan.h"

namespace quern {

namespace {

// Steps of all elements together, and one after the other (a microsecond each): some seconds of a GPU.
constexpr double kMostSteps = 1e12, kMostInOrder = 1 << 22;
// Sums of fewer terms, or of so many elements, keep a GPU busy with a thread for each.
constexpr double kLongSum = 1024, kManyElements = 1 << 16;

// Terms of a sum; 1 of anything else.
double terms_of(const Graph& graph, const Node& node) {
  const OpKind kind = op_info(node.code).kind;
  if (kind == OpKind::contraction) return static_cast<double>(graph.node(node.operands[0]).type.shape.back());
  if (kind == OpKind::reduction)
    return static_cast<double>(graph.node(node.operands[0]).type.element_count()) /
           static_cast<double>(std::max<int64_t>(node.type.element_count(), 1));
  return 1;
}

// Whether a node reads elements of an operand more than once each.
bool reads_again(const Graph& graph, const Node& node, ValueId operand) {
  const OpKind kind = op_info(node.code).kind;
  if (kind == OpKind::contraction) return true;
  return kind != OpKind::reduction && node.code != OpCode::concat &&
         graph.node(operand).type.element_count() < node.type.element_count();
}

Status choose(const Graph& graph, PlacedValues& values) {
  std::vector<int> reads(graph.nodes.size());
  for (ValueId id : graph.outputs)
    values.needed[static_cast<size_t>(id)] = true, ++reads[static_cast<size_t>(id)];
  double steps = 0;
  for (size_t id = graph.nodes.size(); id-- > 0;) {
    if (!values.needed[id]) continue;
    const Node& node = graph.nodes[id];
    const OpKind kind = op_info(node.code).kind;
    const bool sums = kind == OpKind::contraction || kind == OpKind::reduction;
    values.stored[id] =
        sums || ((kind == OpKind::elementwise || kind == OpKind::conversion) && reads[id] > 1);
    const double terms = terms_of(graph, node), elements = static_cast<double>(node.type.element_count());
    values.in_parts[id] =
        terms >= kLongSum && elements < kManyElements && longest_loop(graph, node) >= kPartsOfSum;
    if (terms > kMostInOrder * (values.in_parts[id] ? double{kPartsOfSum} : 1))
      return Status(ErrorCode::UNSUPPORTED, "a sum is too long for the reference");
    steps += terms * elements;
    for (ValueId operand : node.operands) {
      values.needed[static_cast<size_t>(operand)] = true;
      reads[static_cast<size_t>(operand)] += reads_again(graph, node, operand) ? 2
                                             : values.stored[id]               ? 1
                                                                               : reads[id];
    }
  }
  if (steps > kMostSteps) return Status(ErrorCode::UNSUPPORTED, "the graph is too large for the reference");
  return {};
}

// Notes `time` for all stored values that are read where this one is computed.
void note_reads(const Graph& graph, const PlacedValues& values, size_t id, int time, std::vector<int>& last) {
  if (values.stored[id]) {
    last[id] = time;
    return;
  }
  for (ValueId operand : graph.nodes[id].operands)
    note_reads(graph, values, static_cast<size_t>(operand), time, last);
}

}  // namespace

int64_t longest_loop(const Graph& graph, const Node& node) {
  const OpKind kind = op_info(node.code).kind;
  if (kind != OpKind::contraction && kind != OpKind::reduction) return 1;
  const Ints& shape = graph.node(node.operands[0]).type.shape;
  if (kind == OpKind::contraction) return shape.back();
  int64_t longest = 1;
  for (int64_t axis : *node.attrs.axis) longest = std::max(longest, shape[static_cast<size_t>(axis)]);
  return longest;
}

// Stored values live from the kernel that makes them to the last that reads them, through what is not stored.
Result<PlacedValues> place_values(const Graph& graph) {
  PlacedValues values;
  const size_t count = graph.nodes.size();
  values.needed.resize(count);
  values.stored.resize(count);
  values.in_parts.resize(count);
  values.offsets.resize(count);
  if (Status status = choose(graph, values); !status.ok()) return status;
  std::vector<int> last(count);
  std::vector<size_t> ids;
  std::vector<MemoryBuffer> buffers;
  int time = 0;
  for (size_t id = 0; id < count; ++id) {
    if (!values.needed[id] || !values.stored[id]) continue;
    ++time;
    for (ValueId operand : graph.nodes[id].operands)
      note_reads(graph, values, static_cast<size_t>(operand), time, last);
    last[id] = time;
    ids.push_back(id);
    buffers.push_back(
        {std::max<int64_t>(graph.nodes[id].type.element_count(), 1) * kStoredBytes, time, time, 256});
  }
  ++time;
  for (ValueId id : graph.outputs) note_reads(graph, values, static_cast<size_t>(id), time, last);
  for (size_t i = 0; i < ids.size(); ++i) buffers[i].last = last[ids[i]];
  const MemoryPlan plan = plan_memory(buffers);
  for (size_t i = 0; i < ids.size(); ++i) values.offsets[ids[i]] = plan.offsets[i];
  values.bytes = plan.peak;
  return values;
}

}  // namespace quern
