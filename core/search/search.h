// The superoptimizer: from a graph to muGraphs that compute the same, best first.
//
// A graph is cut into pieces; a piece becomes terms in an e-graph, which is saturated; all DAGs of admitted
// block operators up to a bound are enumerated; each is cut into kernels, each kernel given roles and tile
// counts; the best become muGraphs, are validated and verified, and ranked by the cost model. Every step is
// bounded, every bound that stops it is reported, and what has been found until then is returned.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/search/constraints.h"
#include "core/search/cost.h"
#include "core/search/generator.h"
#include "core/search/oracle.h"
#include "core/search/saturate.h"
#include "core/verify/certificate.h"

namespace quern {

struct Candidate {
  MuGraph mugraph;
  double us = 0;                          // by the cost model
  std::string structure;                  // roles of its kernels, a line each
  std::string operators;                  // what they compute, a line an operator
  std::vector<Cost> costs;                // of its kernels; of a split kernel both parts together
  std::vector<Certificate> certificates;  // of the pieces that were searched, each accepted
  int others = 0;  // operators that the graph has not, which may round otherwise or overflow
};

class PieceMemo;

struct SearchOptions {
  int bound = 11;       // block operators of a piece; loads and constants are not counted
  int kernels = 2;      // custom kernels of a piece at most, not counting those that combine partial results
  size_t results = 12;  // candidates of a piece at most
  int threads = 2;
  uint64_t seed = 1;  // of the verification
  size_t max_dags = 200000;
  std::chrono::milliseconds limit{30000};
  const std::atomic<bool>* cancel = nullptr;
  Constraints constraints;
  // Who says what prefixes may have, instead of the look-up (z3_oracle.h). For comparison: it takes seconds.
  OracleMaker oracle;
  // Pieces that are in it are not searched again, and what is found for others is put there (piece_memo.h).
  // With an oracle it is not used.
  PieceMemo* memo = nullptr;
  // The state of an interrupted search for the same graph, target and bound, to go on from.
  std::string resume;
  // Microseconds of a subgraph: computed by this muGraph with the best of its schedules, or, for nullptr, as the baseline
  // has it; infinite if it cannot be. Decides where graphs are cut and what becomes of each subgraph. Without it
  // that is the least traffic, and the cost of roles and sizes alone.
  std::function<double(const Graph&, const MuGraph*)> time_of;
  // Called for every candidate of the graph that is better than those before, from the thread of the caller.
  std::function<void(const Candidate&)> on_better;
};

// What happened to one piece.
struct PieceReport {
  std::string name;      // of its outputs
  size_t operators = 0;  // as written
  std::string outside;   // why it was not searched; the rest is empty then
  bool shared = false;   // found with an equal piece, of this graph or another, whose report this is
  bool apart = false;    // smaller pieces of it follow: nothing was found for it, or they are faster
  double us = 0, baseline_us = 0;  // by `time_of`, if there is one: of the best candidate, and as the baseline has it
  SaturationReport saturation;
  size_t nodes = 0, classes = 0;
  std::optional<Prefixes> prefixes;  // when another oracle was asked
  size_t admitted = 0;  // block operators
  GeneratorReport generator;
  size_t kept = 0;          // DAGs that went on: the least arithmetic of every structure
  size_t kernels = 0;       // different kernels to which roles were given
  size_t roles = 0;         // legal roles of them
  size_t designs = 0;       // of kernels with sizes
  size_t emitted = 0;       // muGraphs derived, all valid
  size_t refused_maps = 0;  // against the constraints
  size_t verified = 0;
  size_t undecided = 0;  // the verifier could neither accept nor reject them: not used
  std::vector<std::string>
      failures;  // of validation or verification: bugs of the search, which uses none of them
  std::vector<std::string> reasons;  // why indices were not looped over
  double saturate_s = 0, generate_s = 0, design_s = 0, verify_s = 0;
  bool timed_out = false, cancelled = false, out_of_memory = false;
};

struct SearchReport {
  std::vector<PieceReport> pieces;
  double seconds = 0;
  bool timed_out = false, cancelled = false, out_of_memory = false;
};

struct SearchResult {
  std::vector<Candidate> candidates;  // best first; empty when no piece could be searched
  SearchReport report;
  std::string state;  // to continue from; empty when the search is finished
};

// Not an error: running out of time or memory, cancellation, pieces that cannot be searched; the report says
// so. INVALID_ARGUMENT for options that make no sense.
Result<SearchResult> search(const Graph& graph, const Target& target, const SearchOptions& options = {});

// The report as people read it.
std::string print_report(const SearchResult& result);

}  // namespace quern
