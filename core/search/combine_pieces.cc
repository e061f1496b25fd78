// Programs of a whole graph from what was found for its pieces.
#include <algorithm>
#include <cmath>
#include <deque>

#include "core/mugraph/tensor_view.h"
#include "core/mugraph/views.h"
#include "core/search/assembly.h"
#include "core/search/piecewise_search.h"
#include "core/verify/rounded_values.h"

namespace quern {

namespace {

constexpr size_t kMostWithOtherLoops = 2;  // ways

}  // namespace

double PiecewiseSearch::candidate_us(const Piece& piece, const Candidate& candidate) const {
  if (piece.placed) {
    const std::optional<Candidate> placed = candidate_of_placed(piece, candidate);
    return placed ? options_.time_of(*piece.placed, &placed->mugraph) : kNever;
  }
  MuGraph prepared = candidate.mugraph;
  prepare(piece.graph, prepared);
  return options_.time_of(piece.graph, &prepared);
}

std::optional<Candidate> PiecewiseSearch::candidate_of_placed(const Piece& piece,
                                                              const Candidate& candidate) const {
  const Graph& placed = *piece.placed;
  std::map<std::string, ValueId> named;
  for (size_t id = 0; id < placed.nodes.size(); ++id)
    named.emplace(placed.nodes[id].name, static_cast<ValueId>(id));
  std::set<std::string> own;
  for (ValueId id : piece.nodes) own.insert(graph_.node(id).name);
  std::deque<Piece> makers;
  for (size_t id = 0; id < placed.nodes.size(); ++id)
    if (const Node& node = placed.nodes[id]; op_info(node.code).kind != OpKind::leaf && !own.count(node.name))
      for (Piece& maker : pieces_of(placed, {static_cast<ValueId>(id)})) makers.push_back(std::move(maker));
  Piece rest = piece;
  for (auto* ids : {&rest.inputs, &rest.outputs})
    for (ValueId& id : *ids) id = named.at(graph_.node(id).name);
  Way way;
  for (const Piece& maker : makers) {
    way.pieces.push_back(&maker);
    way.choices.push_back({0, nullptr});
  }
  way.pieces.push_back(&rest);
  way.choices.push_back({0, &candidate});
  return combined(placed, way);
}

void PiecewiseSearch::time_candidates(const Piece& piece, PieceResult& result) const {
  if (!options_.time_of) return;
  for (Candidate& candidate : result.candidates) {
    candidate.us = candidate_us(piece, candidate);
  }
  std::erase_if(result.candidates, [](const Candidate& candidate) { return !std::isfinite(candidate.us); });
  std::stable_sort(result.candidates.begin(), result.candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
  result.report.baseline_us = left_us(piece);
  result.report.us = result.candidates.empty() ? kNever : result.candidates[0].us;
}

std::vector<Choice> PiecewiseSearch::choices_of(const std::string& text) const {
  std::vector<Choice> choices;
  if (const auto found = found_.find(text); found != found_.end()) {
    for (const Candidate& candidate : found->second.candidates) choices.push_back({candidate.us, &candidate});
    if (options_.time_of) choices.push_back({found->second.report.baseline_us, nullptr});
  }
  if (choices.empty()) choices.push_back({0, nullptr});
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.us < b.us; });
  return choices;
}

void PiecewiseSearch::combine() {
  const Ways ways(pieces_, others_, [&](const Piece& piece) { return choices_of(piece.text()); });
  if (!options_.time_of) {
    combine(ways.by_rank(), options_.results);
    return;
  }
  std::vector<Way> others = ways.with_other_loops();
  others.resize(std::min(others.size(), kMostWithOtherLoops));
  if (std::optional<Way> written = ways.as_written()) others.insert(others.begin(), std::move(*written));
  others.resize(std::min(others.size(), options_.results - 1));
  // Only all kernels together, which may share launches, say how long a way takes.
  const std::vector<Way> by_time = ways.by_time();
  const Way* best = combine(by_time, 2 * options_.results);
  if (best && best != by_time.data()) combine(ways.with_other_choices(*best), 3 * options_.results);
  sort_candidates();
  if (result_.candidates.size() > options_.results - others.size())
    result_.candidates.resize(options_.results - others.size());
  combine(others, options_.results);
  sort_candidates();
}

void PiecewiseSearch::sort_candidates() {
  std::stable_sort(result_.candidates.begin(), result_.candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
}

const Way* PiecewiseSearch::combine(const std::vector<Way>& ways, size_t most) {
  double best = result_.candidates.empty() ? kNever : result_.candidates[0].us;
  const Way* best_way = nullptr;
  for (const Way& way : ways) {
    if (result_.candidates.size() >= most) break;
    std::optional<Candidate> candidate = combined(graph_, way);
    if (!candidate) continue;  // an output that no kernel computes, or nothing but the baseline
    if (std::any_of(result_.candidates.begin(), result_.candidates.end(),
                    [&](const Candidate& known) { return known.mugraph == candidate->mugraph; }))
      continue;
    if (options_.time_of && way.pieces.size() > 1)
      if (const double us = options_.time_of(graph_, &candidate->mugraph); std::isfinite(us))
        candidate->us = us;
    if (candidate->us < best) {
      if (options_.on_better) options_.on_better(*candidate);
      best = candidate->us;
      best_way = &way;
    }
    result_.candidates.push_back(std::move(*candidate));
  }
  return best_way;
}

std::optional<Candidate> PiecewiseSearch::combined(const Graph& graph, const Way& way) const {
  Candidate whole;
  std::vector<const MuGraph*> parts;
  std::deque<MuGraph> libraries;
  bool searched = false;
  for (size_t p = 0; p < way.pieces.size(); ++p) {
    whole.us += way.choices[p].us;
    const Candidate* part = way.choices[p].candidate;
    parts.push_back(part ? &part->mugraph : &libraries.emplace_back(as_library_kernels(*way.pieces[p])));
    if (!part) continue;
    searched = true;
    whole.structure += part->structure;
    whole.others += part->others;
    whole.operators += part->operators;
    whole.costs.insert(whole.costs.end(), part->costs.begin(), part->costs.end());
    whole.certificates.insert(whole.certificates.end(), part->certificates.begin(), part->certificates.end());
  }
  Result<MuGraph> mugraph = assemble(graph, way.pieces, parts);
  if (!searched || !mugraph) return std::nullopt;
  whole.mugraph = std::move(*mugraph);
  prepare(graph, whole.mugraph);
  return whole;
}

void PiecewiseSearch::prepare(const Graph& graph, MuGraph& mugraph) const {
  use_views(mugraph);
  // Values that are unknown when the time is up count as invented, until someone looks again.
  note_rounded_values(graph, mugraph, [this] { return Clock::now() - start_ >= options_.limit; });
}

}  // namespace quern
