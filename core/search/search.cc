#include "core/search/search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/graph/canon.h"
#include "core/mugraph/tensor_view.h"
#include "core/search/flatten.h"
#include "core/search/piece_memo.h"
#include "core/search/piecewise_search.h"
#include "core/search/regroup.h"
#include "core/search/rewrites.h"
#include "core/search/unpack.h"

namespace quern {

namespace {

constexpr double kLeastUs = 1;         // of a kernel
constexpr double kNearFloor = 1.25;    // of a subgraph that is not looked at in parts
constexpr size_t kOtherFormShare = 4;  // of the results, those of a graph whose products are left packed

Status check_options(const SearchOptions& options) {
  auto wrong = [](std::string message) { return Status(ErrorCode::INVALID_ARGUMENT, std::move(message)); };
  if (options.bound < 1 || options.bound > 64) return wrong("the bound must be from 1 to 64 block operators");
  if (options.kernels < 1 || options.kernels > 2) return wrong("1 or 2 kernels are searched for");
  if (options.threads < 1) return wrong("a search needs a thread");
  if (options.results < 1) return wrong("a search must be allowed a result");
  return {};
}

std::string name_of(const Graph& graph, const Piece& piece) {
  std::string name;
  for (ValueId output : piece.outputs) name += (name.empty() ? "" : ", ") + graph.node(output).name;
  return name;
}

}  // namespace

Result<SearchResult> PiecewiseSearch::run() {
  Result<std::map<size_t, GeneratorState>> resumed = parse_states(options_.resume);
  if (!resumed) return resumed.status();
  resumed_ = std::move(*resumed);
  std::vector<Piece> cut = cut_into_pieces(graph_, options_.bound);
  if (!options_.time_of)
    if (Status status = search_all(cut); !status.ok()) return status;
  pieces_left_ = cut.size();
  for (std::vector<Piece>& group : groups_of(graph_, std::move(cut))) {
    const size_t first = pieces_.size();
    for (Piece& piece : group) {
      --pieces_left_;
      Status status = options_.time_of ? settle_by_time(piece) : settle(std::move(piece));
      if (!status.ok()) return status;
    }
    if (options_.time_of && group.size() > 1)
      if (Status status = join(group, first); !status.ok()) return status;
  }
  if (options_.time_of)
    if (Status status = join_pieces(); !status.ok()) return status;
  combine();
  result_.state = print_states(unfinished_);
  result_.report.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  return std::move(result_);
}

Status PiecewiseSearch::search_all(const std::vector<Piece>& pieces) {
  std::vector<const Piece*> different;
  for (const Piece& piece : pieces)
    if (piece.outside.empty() && first_.try_emplace(piece.text(), First{piece.outputs, first_.size()}).second)
      different.push_back(&piece);
  std::stable_sort(different.begin(), different.end(),
                   [](const Piece* a, const Piece* b) { return a->nodes.size() < b->nodes.size(); });
  size_t left = different.size();
  for (const Piece* piece : different)
    if (Status status = search_one(*piece, left--); !status.ok()) return status;
  return {};
}

bool PiecewiseSearch::fits_no_kernel(const Piece& piece) const {
  if (!piece.outside.empty()) return false;
  const PieceResult& result = found(piece);
  const PieceReport& report = result.report;
  return result.candidates.empty() && result.finished && !report.timed_out && !report.cancelled &&
         !report.out_of_memory;
}

Status PiecewiseSearch::settle(Piece piece) {
  std::vector<Piece> parts;
  if (fits_no_kernel(piece)) {
    parts = one_piece_an_output(graph_, piece);
    if (Status status = search_all(parts); !status.ok()) return status;
    const auto none = [&](const Piece& part) { return fits_no_kernel(part); };
    if (parts.empty() || std::any_of(parts.begin(), parts.end(), none)) {
      parts = cut_smaller(graph_, piece);
      if (Status status = search_all(parts); !status.ok()) return status;
    }
  }
  report_one(piece, !parts.empty());
  for (Piece& part : parts)
    if (Status status = settle(std::move(part)); !status.ok()) return status;
  if (parts.empty()) pieces_.push_back(std::move(piece));
  return {};
}

Status PiecewiseSearch::settle_by_time(const Piece& piece) {
  Partition second;
  Result<Partition> best = best_partition(piece, second);
  if (!best) return best.status();
  const size_t first = pieces_.size(), last = first + best->pieces.size();
  const bool whole = best->pieces.size() == 1 && best->pieces[0].nodes.size() == piece.nodes.size();
  if (!whole && is_known(piece)) {
    report_one(piece, true);
    others_.push_back({{piece}, first, last, best->us});
  }
  if (second.pieces.size() > 1) others_.push_back({std::move(second.pieces), first, last, best->us});
  for (Piece& part : best->pieces) {
    report_one(part, false);
    pieces_.push_back(std::move(part));
  }
  return {};
}

double PiecewiseSearch::us_of(const Piece& piece) const {
  return piece.outside.empty() ? choices_of(piece.text())[0].us : left_us(piece);
}

double PiecewiseSearch::left_us(const Piece& piece) const {
  const bool asked = std::any_of(piece.outputs.begin(), piece.outputs.end(), [&](ValueId id) {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  });
  const bool moves = std::all_of(piece.graph.nodes.begin(), piece.graph.nodes.end(), [&](const Node& node) {
    return op_info(node.code).kind == OpKind::leaf || moves_only(node.code) ||
           (!asked && node.code == OpCode::concat);
  });
  return moves ? 0 : options_.time_of(piece.placed ? *piece.placed : piece.graph, nullptr);
}

double PiecewiseSearch::floor_us(const Piece& piece) const {
  double bytes = 0;
  for (const auto* values : {&piece.inputs, &piece.outputs})
    for (ValueId id : *values)
      bytes += static_cast<double>(graph_.node(id).type.element_count()) *
               static_cast<double>(dtype_size(graph_.node(id).type.dtype));
  return kLeastUs + bytes / (target_.dram_gbps * 1e3);
}

double PiecewiseSearch::side_by_side_us(const Piece& piece) const {
  std::vector<ValueId> nodes;
  for (size_t id = 0; id < piece.graph.nodes.size(); ++id)
    if (op_info(piece.graph.nodes[id].code).kind != OpKind::leaf) nodes.push_back(static_cast<ValueId>(id));
  const std::vector<Piece> own = pieces_of(piece.graph, nodes);
  if (own.size() != 1) return kNever;
  Way way{0, 0, {}, {}};
  const std::vector<Piece> parts = one_piece_an_output(piece.graph, own[0]);
  for (const Piece& part : parts) {
    way.pieces.push_back(&part);
    way.choices.push_back(choices_of(part.text())[0]);
  }
  const std::optional<Candidate> together = combined(piece.graph, way);
  return together ? options_.time_of(piece.graph, &together->mugraph) : kNever;
}

auto PiecewiseSearch::in_one(const std::vector<Piece>& pieces) -> Result<Partition> {
  if (Status status = search_all(pieces); !status.ok()) return status;
  Partition out;
  for (const Piece& piece : pieces) {
    Partition best{us_of(piece), {piece}};
    if (piece.outputs.size() > 1 && best.us > kNearFloor * floor_us(piece)) {
      Partition apart{0, one_piece_an_output(graph_, piece)};
      if (Status status = search_all(apart.pieces); !status.ok()) return status;
      for (const Piece& part : apart.pieces) apart.us += us_of(part);
      apart.us = std::min(apart.us, side_by_side_us(piece));
      if (!apart.pieces.empty() && apart.us < best.us) best = std::move(apart);
    }
    out.add(std::move(best));
  }
  return out;
}

auto PiecewiseSearch::best_of_runs(const std::vector<std::vector<ValueId>>& runs)
    -> Result<std::optional<Partition>> {
  const size_t count = runs.size();
  std::vector<std::optional<Partition>> best(count + 1);
  best[0] = Partition{};
  for (size_t last = 1; last <= count; ++last)
    for (size_t first = last; first-- > 0;) {
      if (last - first == count || (Clock::now() - start_ > options_.limit / 2 && last - first > 1)) break;
      std::vector<ValueId> nodes;
      for (size_t run = first; run < last; ++run)
        nodes.insert(nodes.end(), runs[run].begin(), runs[run].end());
      if (products(nodes) > kMostProducts) break;
      Result<Partition> segment = in_one(pieces_of(graph_, nodes));
      if (!segment) return segment.status();
      if (best[last] && best[first]->us + segment->us >= best[last]->us) continue;
      Partition sum = *best[first];
      sum.add(std::move(*segment));
      best[last] = std::move(sum);
    }
  return std::move(best[count]);
}

auto PiecewiseSearch::best_partition(const Piece& piece, Partition& second) -> Result<Partition> {
  const std::vector<std::vector<std::vector<ValueId>>> ways = runs_of(graph_, piece);
  const size_t count = ways[0].size();
  Result<Partition> whole = Partition{kNever, {}};
  if (count == 1 || products(piece.nodes) <= kMostProducts) whole = in_one({piece});
  if (!whole || count == 1) return whole;
  if (whole->us < kNearFloor * floor_us(piece) && products(piece.nodes) < kMostProducts) return whole;
  std::optional<Partition> best;
  for (const std::vector<std::vector<ValueId>>& runs : ways) {
    Result<std::optional<Partition>> parted = best_of_runs(runs);
    if (!parted) return parted.status();
    if (*parted && (!best || (*parted)->us < best->us)) best = std::move(*parted);
  }
  Partition apart{0, one_piece_a_reduction(graph_, piece)};
  if (Status status = search_all(apart.pieces); !status.ok()) return status;
  for (const Piece& part : apart.pieces) apart.us += us_of(part);
  if (!apart.pieces.empty() && (!best || apart.us < best->us)) best = std::move(apart);
  if (!best) return whole;
  if (best->us < whole->us) std::swap(*best, *whole);
  second = std::move(*best);
  return whole;
}

Status PiecewiseSearch::join(const std::vector<Piece>& group, size_t first) {
  std::vector<ValueId> nodes;
  std::set<ValueId> own;  // what several need is in the piece of each
  for (const Piece& piece : group)
    std::copy_if(piece.nodes.begin(), piece.nodes.end(), std::back_inserter(nodes),
                 [&](ValueId id) { return own.insert(id).second; });
  if (!joined_.insert(own).second) return {};
  const Piece joined = joined_piece(graph_, std::move(nodes), options_.bound);
  double apart = 0;
  for (size_t p = first; p < pieces_.size(); ++p) apart += us_of(pieces_[p]);
  if (!joined.outside.empty() || apart < kNearFloor * floor_us(joined)) return {};
  if (Status status = search_all({joined}); !status.ok()) return status;
  const Choice best = choices_of(joined.text())[0];
  if (!best.candidate) return {};
  const bool faster = best.us < apart;
  report_one(joined, !faster);
  if (!faster) {
    others_.push_back({{joined}, first, pieces_.size(), apart});
    return {};
  }
  std::erase_if(others_, [&](const OtherPieces& other) { return other.first >= first; });
  const auto from = pieces_.begin() + static_cast<std::ptrdiff_t>(first);
  others_.push_back({{from, pieces_.end()}, first, first + 1, best.us});
  pieces_.erase(from, pieces_.end());
  pieces_.push_back(joined);
  return {};
}

Status PiecewiseSearch::join_pieces() {
  Status status =
      join_groups([&](std::vector<Piece> pieces) { return groups_of(graph_, std::move(pieces)); });
  for (const bool behind : {false, true})
    if (status.ok())
      status = join_groups(
          [&](std::vector<Piece> pieces) { return beside_products(graph_, std::move(pieces), behind); });
  return status;
}

Status PiecewiseSearch::join_groups(const Grouping& group) {
  const std::vector<Piece> parts = std::move(pieces_);
  const std::vector<OtherPieces> others = std::move(others_);
  pieces_.clear();
  others_.clear();
  for (const std::vector<Piece>& own : group(parts)) {
    const size_t first = pieces_.size();
    pieces_.insert(pieces_.end(), own.begin(), own.end());
    if (own.size() == 1) continue;
    if (Status status = join(own, first); !status.ok()) return status;
  }
  // Others for what still stands there.
  for (OtherPieces other : others) {
    const auto from = parts.begin() + static_cast<std::ptrdiff_t>(other.first);
    const auto until = parts.begin() + static_cast<std::ptrdiff_t>(other.last);
    const auto at = std::search(pieces_.begin(), pieces_.end(), from, until,
                                [](const Piece& a, const Piece& b) { return a.nodes == b.nodes; });
    if (at == pieces_.end()) continue;
    other.first = static_cast<size_t>(at - pieces_.begin());
    other.last = other.first + static_cast<size_t>(until - from);
    others_.push_back(std::move(other));
  }
  return {};
}

Status PiecewiseSearch::search_one(const Piece& piece, size_t left) {
  const auto deadline = start_ + options_.limit, now = Clock::now();
  const auto share =
      now >= deadline ? Clock::duration(0) : (deadline - now) / static_cast<int64_t>(left + pieces_left_);
  const std::string text = piece.text();
  First& first = first_.at(text);
  const std::string key = PieceMemo::key(text, target_, options_);
  if (const PieceResult* remembered = memo() ? memo()->find(key) : nullptr) {
    found_.emplace(text, *remembered);
    first.outputs.clear();
    return {};
  }
  Result<PieceResult> found =
      search_piece(piece, target_, options_, now + share, std::move(resumed_[first.number]));
  if (!found) return found.status();
  time_candidates(piece, *found);
  if (!found->finished) unfinished_[first.number] = found->state;
  if (memo()) memo()->put(key, *found);
  found_.emplace(text, std::move(*found));
  return {};
}

void PiecewiseSearch::report_one(const Piece& piece, bool apart) {
  PieceReport report;
  if (!piece.outside.empty()) {
    report.outside = piece.outside;
  } else {
    const std::string text = piece.text();
    report = found_.at(text).report;
    report.shared = first_.at(text).outputs != piece.outputs;
  }
  report.name = name_of(graph_, piece);
  report.operators = piece.nodes.size();
  report.apart = apart;
  result_.report.timed_out |= report.timed_out;
  result_.report.cancelled |= report.cancelled;
  result_.report.out_of_memory |= report.out_of_memory;
  result_.report.pieces.push_back(std::move(report));
}

namespace {

// Adds the best of a search for another form of the graph, of which nothing is left to go on from.
void add_other_form(SearchResult& result, SearchResult other, const SearchOptions& options) {
  std::vector<Candidate>& all = result.candidates;
  const size_t most = std::max<size_t>(1, options.results / kOtherFormShare);
  if (other.candidates.size() > most) other.candidates.resize(most);
  if (all.size() + other.candidates.size() > options.results)
    all.resize(options.results - std::min(options.results, other.candidates.size()));
  std::move(other.candidates.begin(), other.candidates.end(), std::back_inserter(all));
  if (options.time_of)
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
  std::vector<PieceReport>& pieces = result.report.pieces;
  std::move(other.report.pieces.begin(), other.report.pieces.end(), std::back_inserter(pieces));
  result.report.seconds += other.report.seconds;
  result.report.timed_out |= other.report.timed_out;
  result.report.cancelled |= other.report.cancelled;
  result.report.out_of_memory |= other.report.out_of_memory;
}

}  // namespace

Result<SearchResult> search(const Graph& graph, const Target& target, const SearchOptions& options) {
  if (Status status = check_options(options); !status.ok()) return status;
  const Graph written = rewritten(graph);
  const std::optional<Graph> unpacked = unpack_products(written);
  const Graph first = flatten_rows(regroup(unpacked ? *unpacked : written));
  Result<SearchResult> result = PiecewiseSearch(first, target, options).run();
  if (!unpacked || !result || !options.resume.empty()) return result;
  // Large products may be faster in one.
  SearchOptions rest = options;
  rest.limit -= std::chrono::milliseconds(static_cast<int64_t>(1e3 * result->report.seconds));
  if (rest.limit.count() <= 0 || result->report.cancelled) return result;
  const double best =
      result->candidates.empty() ? std::numeric_limits<double>::infinity() : result->candidates[0].us;
  rest.on_better = [&](const Candidate& candidate) {
    if (options.on_better && candidate.us < best) options.on_better(candidate);
  };
  const Graph second = flatten_rows(regroup(written));
  Result<SearchResult> other = PiecewiseSearch(second, target, rest).run();
  if (!other) return other;
  add_other_form(*result, std::move(*other), options);
  return result;
}

}  // namespace quern
