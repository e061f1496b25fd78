// Graphs whose sizes and dtype are filled in, with a muGraph and one way to run it.
#pragma once

#include "tests/codegen/mugraph_cases.h"

namespace quern {

struct Sizes {
  const char *dtype, *rows, *inner, *columns, *grid, *trip_count;
};

// The texts have TYPE, ROWS, INNER, COLUMNS, GRID and TURNS where these stand; of `way` everything but grid
// and iterations is taken.
MuGraphCase sized_case(const std::string& label, const std::string& graph, const std::string& mugraph,
                       const Sizes& sizes, const KernelSchedule& way);

// A product: x[ROWS, INNER], w[INNER, COLUMNS]; and one whose parts are summed by a cluster of two.
extern const char kProductGraph[], kParts[];
// silu of a product and a bias that lies along its rows, b[COLUMNS].
extern const char kBiasedProductGraph[], kBiasedProduct[];
// The same with two results, the sum s and its silu z.
struct Texts {
  std::string graph, mugraph;
};
Texts two_results();
// A product behind a norm of its rows: x[ROWS, INNER], w[INNER, COLUMNS].
extern const char kNormGraph[], kNorm[];
// Attention over two heads: q[2, ROWS, INNER], k[2, INNER, COLUMNS], v[2, COLUMNS, INNER].
extern const char kAttentionGraph[], kAttention[];

}  // namespace quern
