// Pieces that may be one kernel, and the runs of a piece that kernels can begin with.
#include <algorithm>
#include <functional>
#include <map>

#include "core/search/pieces.h"
#include "core/search/terms.h"

namespace quern {

namespace {

// Each pointwise operator in the run that makes the last of what it reads, as far as runs make it.
std::vector<std::vector<ValueId>> drawn_forward(const Graph& graph,
                                                const std::vector<std::vector<ValueId>>& runs) {
  std::vector<std::vector<ValueId>> drawn(runs.size());
  std::map<ValueId, size_t> made_in;
  // Casts that each piece has its own of are in no run.
  const std::function<int64_t(ValueId)> run_of = [&](ValueId id) -> int64_t {
    if (const auto made = made_in.find(id); made != made_in.end()) return static_cast<int64_t>(made->second);
    return belongs_to_readers(graph, id) ? run_of(graph.node(id).operands[0]) : -1;
  };
  for (size_t run = 0; run < runs.size(); ++run)
    for (ValueId id : runs[run]) {
      int64_t last = -1;
      for (ValueId operand : graph.node(id).operands) last = std::max(last, run_of(operand));
      const size_t at = last >= 0 && is_pointwise(graph.node(id).code) ? static_cast<size_t>(last) : run;
      made_in[id] = at;
      drawn[at].push_back(id);
    }
  std::erase_if(drawn, [](const std::vector<ValueId>& run) { return run.empty(); });
  return drawn;
}

}  // namespace

std::vector<std::vector<std::vector<ValueId>>> runs_of(const Graph& graph, const Piece& piece) {
  std::vector<std::vector<ValueId>> runs;
  std::vector<ValueId> views;  // of what earlier runs or nobody made: with the first one that comes behind
  for (ValueId id : piece.nodes) {
    const Node& node = graph.node(id);
    const OpKind kind = op_info(node.code).kind;
    const bool first = runs.empty();
    if (kind == OpKind::movement &&
        (first || std::find(runs.back().begin(), runs.back().end(), node.operands[0]) == runs.back().end())) {
      views.push_back(id);
      continue;
    }
    if (first || kind == OpKind::contraction || kind == OpKind::reduction || kind == OpKind::composite)
      runs.emplace_back();
    runs.back().insert(runs.back().end(), views.begin(), views.end());
    runs.back().push_back(id);
    views.clear();
  }
  if (!views.empty()) runs.push_back(std::move(views));
  std::vector<std::vector<ValueId>> forward = drawn_forward(graph, runs);
  if (forward == runs) return {std::move(runs)};
  return {std::move(runs), std::move(forward)};
}

namespace {

bool have_common(const Piece& first, const Piece& second) {
  auto reads = [&](ValueId id) {
    return std::find(second.inputs.begin(), second.inputs.end(), id) != second.inputs.end();
  };
  return std::any_of(first.inputs.begin(), first.inputs.end(), reads) ||
         std::any_of(first.outputs.begin(), first.outputs.end(), reads);
}

}  // namespace

std::vector<std::vector<Piece>> groups_of(const Graph& graph, std::vector<Piece> pieces) {
  std::vector<std::vector<Piece>> groups;
  size_t open = 0;  // groups from here on may have more: they have nothing in common with each other
  for (Piece& piece : pieces) {
    const bool alone =
        !piece.outside.empty() || std::any_of(piece.nodes.begin(), piece.nodes.end(), [&](ValueId id) {
          return op_info(graph.node(id).code).kind == OpKind::contraction;
        });
    auto size = static_cast<int>(piece.nodes.size());
    std::vector<size_t> common;
    for (size_t g = open; g < groups.size(); ++g) {
      if (std::none_of(groups[g].begin(), groups[g].end(),
                       [&](const Piece& other) { return have_common(other, piece); }))
        continue;
      common.push_back(g);
      for (const Piece& other : groups[g]) size += static_cast<int>(other.nodes.size());
    }
    if (alone || size > kMostJoined) {
      common.clear();
      open = groups.size() + (alone ? 1 : 0);
    }
    std::vector<Piece> own;
    for (size_t g : common) std::move(groups[g].begin(), groups[g].end(), std::back_inserter(own));
    while (!common.empty()) {
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(common.back()));
      common.pop_back();
    }
    own.push_back(std::move(piece));
    groups.push_back(std::move(own));
  }
  return groups;
}

}  // namespace quern
