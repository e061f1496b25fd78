#include "core/search/search.h"

#include <algorithm>
#include <map>

#include "core/graph/canon.h"
#include "core/search/piece_memo.h"
#include "core/search/piece_search.h"
#include "core/search/pieces.h"

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

// States of pieces that are not finished, by their canonical texts' position among the different ones:
// "piece N" and then the generator's lines.
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
    pieces_ = cut_into_pieces(graph_, options_.bound);
    count_different();
    for (size_t p = 0; p < pieces_.size(); ++p)
      if (Status status = search_one(p, *resumed); !status.ok()) return status;
    for (const Piece& piece : pieces_) libraries_.push_back(as_library_kernels(piece));
    combine();
    result_.state = print_states(unfinished_);
    result_.report.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return std::move(result_);
  }

 private:
  // Equal pieces are searched once.
  void count_different() {
    std::map<std::string, size_t> known;
    for (const Piece& piece : pieces_) {
      const auto [text, is_new] = known.try_emplace(canonical_text(piece.graph), known.size());
      number_.push_back(text->second);
      if (is_new) memo_keys_.push_back(PieceMemo::key(text->first, target_, options_));
    }
    different_ = known.size();
  }

  Status search_one(size_t p, std::map<size_t, GeneratorState>& resumed) {
    const Piece& piece = pieces_[p];
    PieceReport report;
    if (!piece.outside.empty()) {
      report.outside = piece.outside;
    } else if (const auto known = found_.find(number_[p]); known != found_.end()) {
      report = known->second.report;
      report.shared = true;
    } else if (const PieceResult* remembered = memo() ? memo()->find(memo_keys_[number_[p]]) : nullptr) {
      report = remembered->report;
      report.shared = true;
      found_.emplace(number_[p], *remembered);
    } else {
      // What is left of the time is divided among the pieces that are left.
      const auto deadline = start_ + options_.limit;
      const auto now = Clock::now();
      const size_t left = different_ - found_.size();
      const auto share = now >= deadline ? Clock::duration(0) : (deadline - now) / static_cast<int64_t>(left);
      Result<PieceResult> found =
          search_piece(piece.graph, target_, options_, now + share, std::move(resumed[number_[p]]));
      if (!found) return found.status();
      if (!found->finished) unfinished_[number_[p]] = found->state;
      report = found->report;
      if (memo()) memo()->put(memo_keys_[number_[p]], *found);
      found_.emplace(number_[p], std::move(*found));
    }
    report.name = name_of(graph_, piece);
    report.operators = piece.nodes.size();
    result_.report.timed_out |= report.timed_out;
    result_.report.cancelled |= report.cancelled;
    result_.report.pieces.push_back(std::move(report));
    return {};
  }

  PieceMemo* memo() const { return options_.oracle ? nullptr : options_.memo; }

  // The i-th candidate of the graph has the i-th best of every piece, or the last there is.
  void combine() {
    size_t most = 0;
    for (const auto& [number, piece] : found_) most = std::max(most, piece.candidates.size());
    double best = 1e300;
    for (size_t i = 0; i < most; ++i) {
      Candidate candidate;
      std::vector<const MuGraph*> parts;
      for (size_t p = 0; p < pieces_.size(); ++p) {
        const auto found = found_.find(number_[p]);
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
      if (candidate.us < best && options_.on_better) options_.on_better(candidate);
      best = std::min(best, candidate.us);
      result_.candidates.push_back(std::move(candidate));
    }
  }

  const Graph& graph_;
  const Target& target_;
  const SearchOptions& options_;
  const Clock::time_point start_;
  std::vector<Piece> pieces_;
  std::vector<size_t> number_;  // of each piece among the different ones
  size_t different_ = 0;
  std::vector<std::string> memo_keys_;  // of the different ones
  std::map<size_t, PieceResult> found_;
  std::map<size_t, GeneratorState> unfinished_;
  std::vector<MuGraph> libraries_;
  SearchResult result_;
};

}  // namespace

Result<SearchResult> search(const Graph& graph, const Target& target, const SearchOptions& options) {
  if (Status status = check_options(options); !status.ok()) return status;
  return Search(graph, target, options).run();
}

}  // namespace quern
