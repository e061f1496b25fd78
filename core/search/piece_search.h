// The search for one piece.
#pragma once

#include "core/search/pieces.h"
#include "core/search/search.h"

namespace quern {

struct PieceResult {
  std::vector<Candidate> candidates;  // best first
  PieceReport report;
  GeneratorState state;
  bool finished = true;  // whether the state has nothing left
};

// `deadline` is for all of it.
Result<PieceResult> search_piece(const Piece& piece, const Target& target, const SearchOptions& options,
                                 std::chrono::steady_clock::time_point deadline, GeneratorState state);

}  // namespace quern
