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
    std::vector<size_t> left = different_pieces();
    for (; !left.empty(); left.pop_back())
      if (Status status = search_one(left.back(), left.size(), *resumed); !status.ok()) return status;
    for (size_t p = 0; p < pieces_.size(); ++p) report_one(p);
    for (const Piece& piece : pieces_) libraries_.push_back(as_library_kernels(piece));
    combine();
    result_.state = print_states(unfinished_);
    result_.report.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return std::move(result_);
  }

 private:
  // Equal pieces are searched once: the first of each, largest first.
  std::vector<size_t> different_pieces() {
    std::map<std::string, size_t> known;
    std::vector<size_t> first;
    for (size_t p = 0; p < pieces_.size(); ++p) {
      const auto [at, is_new] = known.try_emplace(canonical_text(pieces_[p].graph), known.size());
      number_.push_back(at->second);
      if (is_new) memo_keys_.push_back(PieceMemo::key(at->first, target_, options_));
      if (is_new && pieces_[p].outside.empty()) first.push_back(p);
    }
    std::stable_sort(first.begin(), first.end(),
                     [&](size_t a, size_t b) { return pieces_[a].nodes.size() > pieces_[b].nodes.size(); });
    return first;
  }

  // What is left of the time is divided among the pieces that are left: large ones come last and get what
  // small ones did not need.
  Status search_one(size_t p, size_t left, std::map<size_t, GeneratorState>& resumed) {
    const auto deadline = start_ + options_.limit, now = Clock::now();
    const auto share = now >= deadline ? Clock::duration(0) : (deadline - now) / static_cast<int64_t>(left);
    const size_t number = number_[p];
    if (const PieceResult* remembered = memo() ? memo()->find(memo_keys_[number]) : nullptr) {
      found_.emplace(number, *remembered);
      return {};
    }
    Result<PieceResult> found =
        search_piece(pieces_[p].graph, target_, options_, now + share, std::move(resumed[number]));
    if (!found) return found.status();
    if (!found->finished) unfinished_[number] = found->state;
    first_[number] = p;
    if (memo()) memo()->put(memo_keys_[number], *found);
    found_.emplace(number, std::move(*found));
    return {};
  }

  void report_one(size_t p) {
    PieceReport report;
    if (!pieces_[p].outside.empty()) {
      report.outside = pieces_[p].outside;
    } else {
      report = found_.at(number_[p]).report;
      const auto first = first_.find(number_[p]);  // none searched what was remembered
      report.shared = first == first_.end() || first->second != p;
    }
    report.name = name_of(graph_, pieces_[p]);
    report.operators = pieces_[p].nodes.size();
    result_.report.timed_out |= report.timed_out;
    result_.report.cancelled |= report.cancelled;
    result_.report.out_of_memory |= report.out_of_memory;
    result_.report.pieces.push_back(std::move(report));
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
  std::vector<size_t> number_;          // of each piece among the different ones
  std::vector<std::string> memo_keys_;  // of the different ones
  std::map<size_t, size_t> first_;      // the piece that was searched, by that number
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
