// Which dimension of a tile is which label: the order in which every operator of a DAG has and wants its
// dimensions. Elementwise operators and contractions broadcast as in numpy, reductions keep their dimension
// with extent 1, so that most operands fit as they are.
#pragma once

#include <vector>

#include "core/search/dag.h"

namespace quern {

struct TileDims {
  Dims result;
  std::vector<int> order;      // of a contraction: operands as they are given to it (left before right)
  std::vector<Dims> operands;  // wanted, in that order
  int exact =
      -1;  // of an elementwise operator: the operand that must have them all, for the others to broadcast to
};

// The rows or columns of a product are the last label that only one operand has, or the largest where that is too short for
// a tile, as queries that share keys may lie next to each other; but not where the last one is reduced (`reduced`), as heads
// may be: blocks have it whole, or loop over it. Whether that is `label`, which comes before `last`.
bool makes_better_tiles(Label label, Label last, const Terms& terms, LabelSet reduced);
// What sums, maxima and the like of the DAG reduce; contractions are not among them.
LabelSet reduced_by_operators(const Dag& dag);

// Of what a leaf reads, where `tensors` has the dimensions of all by their index.
Dims leaf_dims(const DagOp& leaf, const std::vector<Dims>& tensors);

// Of every operator of the DAG. `tensors` has the dimensions of what leaves read, by their index, `outputs`
// those of what becomes of dag.outputs.
std::vector<TileDims> tile_dims(const Dag& dag, const std::vector<Dims>& tensors,
                                const std::vector<Dims>& outputs, const Terms& terms);

// What an operator can take where it wants given dimensions: dimensions of extent 1 may come before them or
// be left out there.
struct Fit {
  size_t least = 0;  // dimensions from the last that must be there
  size_t most = 0;   // dimensions in all
};
inline constexpr Fit kExactly = {static_cast<size_t>(-1), 0};
bool fits(const Dims& have, const Dims& want, const Fit& fit);

}  // namespace quern
