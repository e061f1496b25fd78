// Cuts a graph into pieces that the search can take whole, at the least traffic between them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace quern {

// Computed element by element, casts among it.
inline bool is_pointwise(OpCode code) { return is_elementwise(code) || code == OpCode::cast; }

struct Piece {
  // Of the whole graph, operands before users; without casts that each piece has its own of (belongs_to_readers).
  std::vector<ValueId> nodes;
  Graph graph;                 // the piece on its own
  // Of `graph`, as values of the whole graph. A value that is read in several roles, as a residual is beside
  // the product it goes into, may be several inputs: one tensor whose dimensions are not joined.
  std::vector<ValueId> inputs, outputs;
  std::string outside;  // why it is left to the baseline; empty: it is searched
  // By input: made of iotas and numbers alone, so that kernels compute it from where their tiles lie (use_views).
  std::vector<bool> numbered = {};
  // If there are such inputs, or views of the graph's own: the piece with what makes them, under the names that they have in
  // `graph`. What programs take is told of it: tiles that a mask leaves empty are passed over, and which loads are fast depends on
  // how what is read lies in memory.
  std::optional<Graph> placed = {};
  int operators = 0;  // that a search may need for what is written
  // Searched as it is written, without the other forms of its operators: it has more of them than the bound.
  bool as_written = false;

  // Pieces with one text have the same programs, at the same costs.
  std::string text() const;
};

inline constexpr int64_t kMostProducts = 3;  // of what is searched whole
int64_t count_products(const Graph& graph, const std::vector<ValueId>& nodes);
inline constexpr int kMostJoined = 48;  // operators of pieces that are joined, or compute element by element

// Pieces in an order in which they can run. No piece needs more than `bound` operators as it is written, or eleven more
// where what stays inside of it is larger than all that it reads and writes, as the scores of attention are, and it has no more
// than kMostProducts. What computes element by element alone may have as many as are ever joined.
std::vector<Piece> cut_into_pieces(const Graph& graph, int bound);

// The same as smaller pieces, for one that no kernel was found for. One for each output: what several need is
// computed by each. Empty where there is but one, or a product would be computed twice.
std::vector<Piece> one_piece_an_output(const Graph& graph, const Piece& piece);
// The same for each output and each reduction: what stands between them is computed by each that needs it, and not stored.
std::vector<Piece> one_piece_a_reduction(const Graph& graph, const Piece& piece);
// The minimum-traffic cut: into subgraphs that exchange as few bytes as possible. Empty for a single operator.
std::vector<Piece> cut_smaller(const Graph& graph, const Piece& piece);

// The nodes of a piece in runs that a kernel can begin with: each product, reduction, norm or softmax begins one, with the
// elementwise operators behind it: in the order of the piece, and, if that differs, each as early as what it reads is made.
std::vector<std::vector<std::vector<ValueId>>> runs_of(const Graph& graph, const Piece& piece);
// Some nodes of the graph, operands before users, as pieces: those that do not depend on each other are different ones.
std::vector<Piece> pieces_of(const Graph& graph, const std::vector<ValueId>& nodes);
// Pieces that have values in common in groups that may be one kernel each; those with products, and what is not searched, alone.
// In an order in which they can run.
std::vector<std::vector<Piece>> groups_of(const Graph& graph, std::vector<Piece> pieces);
// Pieces with products in groups with those that compute element by element, alone for them, what they read; or, `behind`, with those
// that read what they make for these alone. All others alone, in an order in which they can run.
std::vector<std::vector<Piece>> beside_products(const Graph& graph, std::vector<Piece> pieces, bool behind);
// All of these nodes as one piece, also those that have nothing but inputs in common.
Piece joined_piece(const Graph& graph, std::vector<ValueId> nodes, int bound);

}  // namespace quern
