#include "core/search/search.h"

#include <algorithm>
#include <map>

#include "core/graph/canon.h"
#include "core/search/assembly.h"
#include "core/search/piece_memo.h"
#include "core/search/piece_search.h"
#include "core/search/pieces.h"
#include "core/verify/rounded_values.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

Status check_options(const SearchOptions& options) {
  auto wrong = [](std::string message) { return Status(ErrorCode::INVALID_ARGUMENT, std::move(message)); };
  if (options.bound < 1 || options.bound > 64) return wrong("the bound must be from 1 to 64 block operators");
  if (options.kernels < 1 || options.kernels > 2) return wrong("1 or 2 kernels are searched for");
  if (options.threads < 1) return wrong("a search needs a thread");
  if (options.results < 1) return wrong("a search must be allowed a result");
  return {};
}

// States of pieces that are not finished, by the order in which different ones came up: "piece N" and then
// the generator's lines.
std::string print_states(const std::map<size_t, GeneratorState>& states) {
  std::string text;
  for (const auto& [number, state] : states) text += "piece " + std::to_string(number) + "\n" + state.text();
  return text;
}

Result<std::map<size_t, GeneratorState>> parse_states(const std::string& text) {
  std::map<size_t, GeneratorState> states;
  for (size_t at = 0; at < text.size();) {
    const size_t line_end = text.find('\n', at);
    if (text.compare(at, 6, "piece ") != 0 || line_end == std::string::npos)
      return Status(ErrorCode::INVALID_ARGUMENT, "this is no state of a search that can be continued");
    const size_t next = std::min(text.find("\npiece ", line_end), text.size() - 1) + 1;
    Result<GeneratorState> state =
        GeneratorState::parse(std::string_view(text).substr(line_end + 1, next - line_end - 1));
    if (!state) return state.status();
    states[std::strtoul(text.c_str() + at + 6, nullptr, 10)] = std::move(*state);
    at = next;
  }
  return states;
}

std::string name_of(const Graph& graph, const Piece& piece) {
  std::string name;
  for (ValueId output : piece.outputs) name += (name.empty() ? "" : ", ") + graph.node(output).name;
  return name;
}

class Search {
 public:
  Search(const Graph& graph, const Target& target, const SearchOptions& options)
      : graph_(graph), target_(target), options_(options), start_(Clock::now()) {}

  Result<SearchResult> run() {
    Result<std::map<size_t, GeneratorState>> resumed = parse_states(options_.resume);
    if (!resumed) return resumed.status();
    resumed_ = std::move(*resumed);
    std::vector<Piece> cut = cut_into_pieces(graph_, options_.bound);
    if (Status status = search_all(cut); !status.ok()) return status;
    for (Piece& piece : cut)
      if (Status status = settle(std::move(piece)); !status.ok()) return status;
    for (const Piece& piece : pieces_) libraries_.push_back(as_library_kernels(piece));
    combine();
    result_.state = print_states(unfinished_);
    result_.report.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return std::move(result_);
  }

 private:
  // Equal pieces are searched once: the first of each, largest last.
  Status search_all(const std::vector<Piece>& pieces) {
    std::vector<const Piece*> different;
    for (const Piece& piece : pieces)
      if (piece.outside.empty() &&
          first_.try_emplace(canonical_text(piece.graph), First{piece.outputs, first_.size()}).second)
        different.push_back(&piece);
    std::stable_sort(different.begin(), different.end(),
                     [](const Piece* a, const Piece* b) { return a->nodes.size() < b->nodes.size(); });
    size_t left = different.size();
    for (const Piece* piece : different)
      if (Status status = search_one(*piece, left--); !status.ok()) return status;
    return {};
  }

  // More time would not help it.
  bool fits_no_kernel(const Piece& piece) const {
    if (!piece.outside.empty()) return false;
    const PieceResult& result = found_.at(canonical_text(piece.graph));
    const PieceReport& report = result.report;
    return result.candidates.empty() && result.finished && !report.timed_out && !report.cancelled &&
           !report.out_of_memory;
  }

  // Becomes one of the pieces of the graph, or several: what no kernel was found for is taken apart.
  Status settle(Piece piece) {
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

  // What is left of the time is divided among the pieces that are left: large ones come last and get what
  // small ones did not need.
  Status search_one(const Piece& piece, size_t left) {
    const auto deadline = start_ + options_.limit, now = Clock::now();
    const auto share = now >= deadline ? Clock::duration(0) : (deadline - now) / static_cast<int64_t>(left);
    const std::string text = canonical_text(piece.graph);
    First& first = first_.at(text);
    const std::string key = PieceMemo::key(text, target_, options_);
    if (const PieceResult* remembered = memo() ? memo()->find(key) : nullptr) {
      found_.emplace(text, *remembered);
      first.outputs.clear();
      return {};
    }
    Result<PieceResult> found =
        search_piece(piece.graph, target_, options_, now + share, std::move(resumed_[first.number]));
    if (!found) return found.status();
    if (!found->finished) unfinished_[first.number] = found->state;
    if (memo()) memo()->put(key, *found);
    found_.emplace(text, std::move(*found));
    return {};
  }

  void report_one(const Piece& piece, bool apart) {
    PieceReport report;
    if (!piece.outside.empty()) {
      report.outside = piece.outside;
    } else {
      const std::string text = canonical_text(piece.graph);
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

  PieceMemo* memo() const { return options_.oracle ? nullptr : options_.memo; }

  // The i-th candidate of the graph has the i-th best of every piece, or the last there is.
  void combine() {
    size_t most = 0;
    for (const auto& [text, piece] : found_) most = std::max(most, piece.candidates.size());
    double best = 1e300;
    for (size_t i = 0; i < most; ++i) {
      Candidate candidate;
      std::vector<const MuGraph*> parts;
      for (size_t p = 0; p < pieces_.size(); ++p) {
        const auto found = found_.find(canonical_text(pieces_[p].graph));
        if (found == found_.end() || found->second.candidates.empty()) {
          parts.push_back(&libraries_[p]);
          continue;
        }
        const std::vector<Candidate>& own = found->second.candidates;
        const Candidate& part = own[std::min(i, own.size() - 1)];
        parts.push_back(&part.mugraph);
        candidate.us += part.us;
        candidate.structure += part.structure;
        candidate.operators += part.operators;
        candidate.costs.insert(candidate.costs.end(), part.costs.begin(), part.costs.end());
        candidate.certificates.insert(candidate.certificates.end(), part.certificates.begin(),
                                      part.certificates.end());
      }
      Result<MuGraph> whole = assemble(graph_, pieces_, parts);
      if (!whole) continue;  // an output that no kernel computes
      candidate.mugraph = std::move(*whole);
      // Values that are unknown when the time is up count as invented, until someone looks again.
      note_rounded_values(graph_, candidate.mugraph, [this] { return Clock::now() - start_ >= options_.limit; });
      if (candidate.us < best && options_.on_better) options_.on_better(candidate);
      best = std::min(best, candidate.us);
      result_.candidates.push_back(std::move(candidate));
    }
  }

  const Graph& graph_;
  const Target& target_;
  const SearchOptions& options_;
  const Clock::time_point start_;
  std::map<size_t, GeneratorState> resumed_, unfinished_;  // by the number of the piece
  std::vector<Piece> pieces_;
  // Of each canonical text of a piece: the outputs of the first that has it, none if it was remembered.
  struct First {
    std::vector<ValueId> outputs;
    size_t number;
  };
  std::map<std::string, First> first_;
  std::map<std::string, PieceResult> found_;
  std::vector<MuGraph> libraries_;
  SearchResult result_;
};

}  // namespace

Result<SearchResult> search(const Graph& graph, const Target& target, const SearchOptions& options) {
  if (Status status = check_options(options); !status.ok()) return status;
  return Search(graph, target, options).run();
}

}  // namespace quern
