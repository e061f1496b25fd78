// What the model of schedules counts, beside what the kernels that it ranks come to.
#pragma once

#include <string>
#include <vector>

#include "core/codegen/mugraph_emitter.h"
#include "core/search/search.h"

namespace quern {

// A number of one kernel; widths are sets of bytes, as a bit each.
struct Disagreement {
  size_t program = 0, kernel = 0;
  std::string what, schedule;
  double modelled = 0, lowered = 0;
};

struct Agreement {
  size_t ranked = 0, programs = 0, refused = 0, kernels = 0;
  double lower_ms = 0, count_ms = 0;  // of all programs
  std::vector<Disagreement> disagreements;
};

// The `best` programs of a search for the graph and as many from further down the list, lowered and counted.
// Compared are what the model has no constants for: TMA or not and its copies, widths of other copies into
// stages and of operands that tensor cores take straight from memory, products by mma and wgmma, room for the
// ring. Not of kernels that masks make shorter, whose blocks differ, nor of blocks that stay.
Agreement compare_counts(const Graph& graph, const Target& target, size_t best);
std::string print(const Disagreement& disagreement);

}  // namespace quern
