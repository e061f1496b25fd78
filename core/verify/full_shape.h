// Elements of the outputs of a graph at its full shape, for random inputs in the field: computed when they
// are asked for, remembered, and compared with those of any number of muGraphs.
#pragma once

#include <memory>
#include <optional>

#include "core/mugraph/mugraph.h"
#include "core/verify/field.h"
#include "core/verify/pull.h"

namespace quern {

class FullShape {
 public:
  // `budget`: values that may be computed for one comparison, in each of the two programs. The graph must
  // outlive this.
  FullShape(const Graph& graph, uint64_t seed, int64_t budget);

  struct Comparison {
    int64_t compared = 0;
    bool every_output = true;  // whether an element of each output was compared
    Status misfit;                                      // why tiles of the muGraph do not fit together
    std::optional<std::pair<size_t, int64_t>> differs;  // output and element
    std::string cut_short;  // why not all samples were compared; "" when they were
  };
  // Of a valid muGraph with the graph's inputs and outputs. Samples of each output: the first element, the
  // last, one at random, and those on both sides of the edges of the first and the last tile.
  // Ends early when `stop` says so.
  Comparison compare(const MuGraph& mugraph, Stop& stop);

 private:
  void draw(uint64_t seed);
  void sample(const MuGraph& mugraph, size_t output, std::vector<int64_t>& elements) const;
  uint64_t random_element(size_t output) const;

  const Graph& graph_;
  const Graph primitive_;
  std::vector<size_t> input_index_;  // by node of primitive_
  uint64_t seed_;
  const int64_t budget_;
  int64_t spent_ = 0;  // on what is remembered
  // Of outputs: whether the first element takes more than half the budget, so that it is not tried again.
  std::vector<bool> too_large_;
  PullBudget left_;
  std::unique_ptr<FieldDomain> domain_;
  std::unique_ptr<PullEvaluator<FieldDomain>> expected_;
};

}  // namespace quern
