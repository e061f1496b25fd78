// Inputs of the ordered trials: small rational numbers that make conditions, comparisons and maxima come out
// both ways, ties and zeros happen, integers wrap, and NaN and infinities go where they go.
#pragma once

#include <vector>

#include "core/mugraph/mugraph.h"
#include "core/verify/evaluate.h"
#include "core/verify/ordered.h"

namespace quern {

// How a trial draws its inputs. Truth values are drawn one by one, with rows that are all true or all false,
// or false but for two.
enum class TrialKind : uint8_t {
  wide,         // numbers between -2 and 2, hardly ever equal; integers of all 32 bits
  ties,         // few different numbers, many of them 0, and small ones that are written in the programs
  by_input,     // every input above, or below, those in front of it
  by_position,  // rising or falling along every dimension
  literals,     // in each input in turn, the numbers that are written in the programs; in most others ties
  masked,       // wide, with -inf, in some rows all but two; the largest and the smallest integers
  special,      // wide, with one element that is NaN or infinite, of each input in turn; extreme integers
};
const char* trial_kind_name(TrialKind kind);
// The kind of the n-th ordered trial. All of them come up among the first kAllKinds trials, the four that do
// not need an order to matter among the first four.
inline constexpr int kAllKinds = 12;
TrialKind trial_kind(int n);
inline bool has_special_inputs(TrialKind kind) {
  return kind == TrialKind::masked || kind == TrialKind::special;
}

// Which inputs of the graph either program reads. The others need not be drawn, and may be large. Without the
// last `iotas` (core/mugraph/short_iotas.h).
std::vector<bool> read_inputs(const Graph& graph, const MuGraph& mugraph, size_t iotas = 0);

// Of the n-th trial; empty where `read` is false. `literals`: finite numbers of the programs. The domain is
// one of the trial.
std::vector<Elements<OrderedValue>> trial_inputs(const Graph& graph, const std::vector<bool>& read, int n,
                                                 uint64_t seed, const std::vector<double>& literals,
                                                 const OrderedDomain& domain);

}  // namespace quern
