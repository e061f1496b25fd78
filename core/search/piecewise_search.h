// A search of a graph piece by piece: pieces are settled in search.cc, and what was found for them is combined to programs of all of it in combine_pieces.cc.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/search/piece_search.h"
#include "core/search/pieces.h"
#include "core/search/search.h"
#include "core/search/ways.h"

namespace quern {

class PiecewiseSearch {
  using Clock = std::chrono::steady_clock;

 public:
  PiecewiseSearch(const Graph& graph, const Target& target, const SearchOptions& options)
      : graph_(graph), target_(target), options_(options), start_(Clock::now()) {}
  Result<SearchResult> run();

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // Equal pieces are searched once: the first of each, largest last.
  Status search_all(const std::vector<Piece>& pieces);
  bool is_known(const Piece& piece) const { return !piece.outside.empty() || found_.count(piece.text()) > 0; }
  const PieceResult& found(const Piece& piece) const { return found_.at(piece.text()); }
  // More time would not help it.
  bool fits_no_kernel(const Piece& piece) const;
  // Becomes one of the pieces of the graph, or several: what no kernel was found for is taken apart.
  Status settle(Piece piece);

  // ---- by time ----

  // Becomes one of the pieces of the graph, or several that are faster.
  Status settle_by_time(const Piece& piece);

  struct Partition {
    double us = 0;
    std::vector<Piece> pieces;
    void add(Partition other) {
      us += other.us;
      for (Piece& piece : other.pieces) pieces.push_back(std::move(piece));
    }
  };
  // The faster of its best candidate and the baseline.
  double us_of(const Piece& piece) const;
  // Of the baseline. What only moves elements is read where they lie, and so is what is concatenated, if nobody asks for it.
  double left_us(const Piece& piece) const;
  // Bytes that it reads and writes at least.
  double floor_us(const Piece& piece) const;
  // One piece for each output, each by its best choice: those that are independent may share launches.
  double side_by_side_us(const Piece& piece) const;
  // In one piece, or one for each output.
  Result<Partition> in_one(const std::vector<Piece>& pieces);
  int64_t products(const std::vector<ValueId>& nodes) const { return count_products(graph_, nodes); }
  // The fastest choice of where runs are parted, by dynamic programming; nothing if each has more products than a piece may.
  Result<std::optional<Partition>> best_of_runs(const std::vector<std::vector<ValueId>>& runs);
  // Whole, or parted between its runs or behind its reductions. What is near the floor already stays whole, unless it has
  // so many products that the search cannot have looked at all of its kernels. `second` is the best of the other kind,
  // parted or whole, if there is one.
  Result<Partition> best_partition(const Piece& piece, Partition& second);

  // ---- pieces that read the same ----

  // A group in one, where that may save traffic: instead of pieces_ from `first` on, if it is faster.
  Status join(const std::vector<Piece>& group, size_t first);
  // What pieces became that were taken apart may be in a group with others, and products with what is computed element by element
  // beside them.
  Status join_pieces();
  using Grouping = std::function<std::vector<std::vector<Piece>>(std::vector<Piece>)>;
  Status join_groups(const Grouping& group);
  double candidate_us(const Piece& piece, const Candidate& candidate) const;
  // Of the piece with what makes its known inputs, each operator of these a piece that is left to the baseline.
  std::optional<Candidate> candidate_of_placed(const Piece& piece, const Candidate& candidate) const;
  // Candidates by the time of their best schedules.
  void time_candidates(const Piece& piece, PieceResult& result) const;
  // What is left of the time is divided among the pieces that are left: large ones come last and get what
  // small ones did not need.
  Status search_one(const Piece& piece, size_t left);
  void report_one(const Piece& piece, bool apart);
  PieceMemo* memo() const { return options_.oracle ? nullptr : options_.memo; }
  // What a piece may be computed by, best first.
  std::vector<Choice> choices_of(const std::string& text) const;
  void combine();
  void sort_candidates();
  // Adds the candidates of these ways, until there are `most`. Returns the way that is faster than all there were.
  const Way* combine(const std::vector<Way>& ways, size_t most);
  std::optional<Candidate> combined(const Graph& graph, const Way& way) const;
  // What makes it fast beside its kernels.
  void prepare(const Graph& graph, MuGraph& mugraph) const;

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
  std::vector<OtherPieces> others_;
  std::set<std::set<ValueId>> joined_;  // groups of nodes that were searched as one
  size_t pieces_left_ = 0;              // to be settled behind this one
  SearchResult result_;
};

}  // namespace quern
