// Ways to compute a graph whose pieces have been searched: which choice each piece takes.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/search/pieces.h"
#include "core/search/search.h"

namespace quern {

// What a piece may be computed by; without a candidate it is the baseline.
struct Choice {
  double us;
  const Candidate* candidate;
};

struct Way {
  double slower;  // than the one that it changes, in microseconds; and of what the pieces that it changes take there
  double share;
  std::vector<const Piece*> pieces;
  std::vector<Choice> choices;
};

// Other pieces than [first, last) of the graph's, which take `us`: what was parted as a whole, or parted otherwise.
struct OtherPieces {
  std::vector<Piece> pieces;
  size_t first, last;
  double us;
};

class Ways {
 public:
  // `choices_of` a piece are its choices, best first, at least one. All must outlive this, and what it returns.
  using ChoicesOf = std::function<std::vector<Choice>(const Piece&)>;
  Ways(const std::vector<Piece>& pieces, const std::vector<OtherPieces>& others, ChoicesOf choices_of);

  // The best choice of every piece, then ways with one change: first what is slower by the smallest share, for the
  // model is wrong by shares, and is right more often about a small piece that is a little slower.
  std::vector<Way> by_time() const;
  // One piece of `way`, and all that are equal to it, has another choice.
  std::vector<Way> with_other_choices(const Way& way) const;
  // Pieces that read one value have loops in other kernels than the best ones do, about which the model is most wrong;
  // those that take longest first.
  std::vector<Way> with_other_loops() const;
  // Every piece has most of the graph's own operators; nothing where the best choices have. What others make of large numbers
  // may be refused in all ways that differ in something else.
  std::optional<Way> as_written() const;
  // Without times that could be compared: the i-th choice of every piece, or the last there is.
  std::vector<Way> by_rank() const;

 private:
  std::vector<Way> with_other_pieces() const;
  std::vector<Way> with_alike_choices(bool other_loops) const;
  std::optional<Choice> choice_like(const Choice& like, const Piece& piece) const;

  const std::vector<Piece>& pieces_;
  const std::vector<OtherPieces>& others_;
  const ChoicesOf choices_of_;
  Way best_{0, 0, {}, {}};  // the best choice of every piece
};

}  // namespace quern
