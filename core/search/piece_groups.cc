// Pieces that may be one kernel, and the runs of a piece that kernels can begin with.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

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

int64_t count_products(const Graph& graph, const std::vector<ValueId>& nodes) {
  return std::count_if(nodes.begin(), nodes.end(),
                       [&](ValueId id) { return op_info(graph.node(id).code).kind == OpKind::contraction; });
}

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

bool multiplies(const Graph& graph, const Piece& piece) { return count_products(graph, piece.nodes) > 0; }

}  // namespace

std::vector<std::vector<Piece>> groups_of(const Graph& graph, std::vector<Piece> pieces) {
  std::vector<std::vector<Piece>> groups;
  size_t open = 0;  // groups from here on may have more: they have nothing in common with each other
  for (Piece& piece : pieces) {
    const bool alone = !piece.outside.empty() || multiplies(graph, piece);
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

namespace {

// Pieces that read a value, by their numbers; the number of pieces stands for who asks for the graph's outputs.
std::map<ValueId, std::set<size_t>> readers_of(const Graph& graph, const std::vector<Piece>& pieces) {
  std::map<ValueId, std::set<size_t>> readers;
  for (size_t p = 0; p < pieces.size(); ++p)
    for (ValueId id : pieces[p].inputs) readers[id].insert(p);
  for (ValueId id : graph.outputs) readers[id].insert(pieces.size());
  return readers;
}

bool is_searched_pointwise(const Graph& graph, const Piece& piece) {
  return piece.outside.empty() && std::all_of(piece.nodes.begin(), piece.nodes.end(),
                                              [&](ValueId id) { return is_pointwise(graph.node(id).code); });
}

bool is_searched_product(const Graph& graph, const Piece& piece) {
  return piece.outside.empty() && multiplies(graph, piece);
}

// The product that alone reads what the piece makes.
std::optional<size_t> product_behind(const Graph& graph, const std::vector<Piece>& pieces, size_t p,
                                     const std::map<ValueId, std::set<size_t>>& readers) {
  std::set<size_t> all;
  for (ValueId id : pieces[p].outputs)
    if (const auto own = readers.find(id); own != readers.end())
      all.insert(own->second.begin(), own->second.end());
  if (all.size() != 1 || *all.begin() == pieces.size()) return std::nullopt;
  return is_searched_product(graph, pieces[*all.begin()]) ? std::optional(*all.begin()) : std::nullopt;
}

// The product that makes the last of what the piece reads, and some of it for this piece alone.
std::optional<size_t> product_in_front(const Graph& graph, const std::vector<Piece>& pieces, size_t p,
                                       const std::map<ValueId, std::set<size_t>>& readers) {
  auto reads = [&](ValueId id) {
    return std::find(pieces[p].inputs.begin(), pieces[p].inputs.end(), id) != pieces[p].inputs.end();
  };
  size_t last = p;
  while (last-- > 0)
    if (std::any_of(pieces[last].outputs.begin(), pieces[last].outputs.end(), reads)) break;
  if (last >= p || !is_searched_product(graph, pieces[last])) return std::nullopt;
  const bool alone = std::any_of(pieces[last].outputs.begin(), pieces[last].outputs.end(),
                                 [&](ValueId id) { return reads(id) && readers.at(id).size() == 1; });
  return alone ? std::optional(last) : std::nullopt;
}

}  // namespace

std::vector<std::vector<Piece>> beside_products(const Graph& graph, std::vector<Piece> pieces, bool behind) {
  const std::map<ValueId, std::set<size_t>> readers = readers_of(graph, pieces);
  std::vector<std::vector<size_t>> groups(pieces.size());
  std::vector<size_t> sizes;
  for (const Piece& piece : pieces) sizes.push_back(piece.nodes.size());
  std::vector<bool> joins(pieces.size(), false);
  for (size_t p = 0; p < pieces.size(); ++p) {
    if (!is_searched_pointwise(graph, pieces[p])) continue;
    const auto product =
        behind ? product_in_front(graph, pieces, p, readers) : product_behind(graph, pieces, p, readers);
    if (!product || sizes[*product] + pieces[p].nodes.size() > kMostJoined) continue;
    sizes[*product] += pieces[p].nodes.size();
    groups[*product].push_back(p);
    joins[p] = true;
  }
  std::vector<std::vector<Piece>> out;
  for (size_t p = 0; p < pieces.size(); ++p) {
    if (joins[p]) continue;
    groups[p].insert(behind ? groups[p].begin() : groups[p].end(), p);
    std::vector<Piece>& group = out.emplace_back();
    for (size_t member : groups[p]) group.push_back(std::move(pieces[member]));
  }
  return out;
}

}  // namespace quern
