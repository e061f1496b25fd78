#include "core/verify/lengths.h"

#include <algorithm>
#include <set>

#include "core/base/random.h"
#include "core/graph/decompose.h"
#include "core/verify/evaluate.h"
#include "core/verify/reference.h"

namespace quern {

namespace {

// What a value is computed of, where that is positions, numbers and integers that are inputs.
struct Sources {
  bool known = false;
  std::set<ValueId> integers;
  int64_t extent = 0;  // of the positions
};

Sources sources_of(const Graph& graph, ValueId id, const std::vector<Sources>& all) {
  const Node& node = graph.node(id);
  Sources out{true, {}, 0};
  if (node.code == OpCode::iota) out.extent = node.type.shape[static_cast<size_t>((*node.attrs.axis)[0])];
  if (node.code == OpCode::input && node.type.dtype == DType::i32) out.integers = {id};
  const OpKind kind = op_info(node.code).kind;
  if (node.code == OpCode::input || kind == OpKind::contraction || kind == OpKind::reduction)
    out.known = !out.integers.empty();
  for (ValueId operand : node.operands) {
    const Sources& from = all[static_cast<size_t>(operand)];
    out.known = out.known && from.known;
    out.integers.insert(from.integers.begin(), from.integers.end());
    out.extent = std::max(out.extent, from.extent);
  }
  return out;
}

}  // namespace

std::vector<int64_t> compared_positions(const Graph& graph) {
  const Graph primitive = decompose(graph);
  std::vector<Sources> all;
  std::vector<int64_t> extents(primitive.nodes.size());
  for (size_t id = 0; id < primitive.nodes.size(); ++id) {
    all.push_back(sources_of(primitive, static_cast<ValueId>(id), all));
    const OpCode code = primitive.nodes[id].code;
    const bool compares = code == OpCode::lt || code == OpCode::le || code == OpCode::eq;
    if (!compares || !all[id].known) continue;
    for (ValueId input : all[id].integers)
      extents[static_cast<size_t>(input)] = std::max(extents[static_cast<size_t>(input)], all[id].extent);
  }
  std::vector<int64_t> out;
  for (ValueId input : primitive.inputs) out.push_back(extents[static_cast<size_t>(input)]);
  return out;
}

std::string length_buffer(const TensorDesc& desc, int64_t extent, uint64_t seed, bool any) {
  Random random(seed);
  const int64_t least = any ? 0 : extent / 2, most = any ? extent + 1 : extent;
  const auto choices = static_cast<uint64_t>(most - least + 1);
  RealTensor lengths;
  for_each_offset(desc.shape, desc.strides, 0, [&](int64_t) {
    lengths.push_back(static_cast<double>(least + static_cast<int64_t>(random.below(choices))));
  });
  return write_buffer(desc, lengths);
}

}  // namespace quern
