// A DAG of block operators: what a piece computes, before it is decided where.
#pragma once

#include <string>
#include <vector>

#include "core/search/universe.h"

namespace quern {

struct DagOp {
  BlockTerm term;
  ClassId id = -1;
  std::vector<int> operands;  // positions in Dag::ops
  LabelSet labels = 0;        // along which it varies
};

// Whether it sums, or takes the extremum, over the index; of a leaf, whether whole.h has renamed that.
inline bool reduces(const DagOp& op, Label label) {
  return op.term.label == label || op.term.label2 == label;
}

struct Dag {
  std::vector<DagOp> ops;    // operands before users
  std::vector<int> outputs;  // positions, of the goals in order
  std::vector<int> choices;  // of the generator, that led here: its name in one search
};

// "o = div(sum[k](mul(e, v)), sum[k](e))" and so on, a line an operator that is neither load nor constant.
std::string print_dag(const Dag& dag, const Terms& terms);

}  // namespace quern
