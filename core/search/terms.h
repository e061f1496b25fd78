// A piece of a graph as indexed terms in an e-graph: what the search starts from.
//
// Dimensions that the operators make equal are one label; dimensions of extent 1 have none. Transposes,
// broadcasts and reshapes that only add or remove extents of 1 rename dimensions and are no terms, nor are casts
// that change no value or keep precision (core/graph/decompose.h); casts that round, to integers among them, are
// operators of which nothing else is known, and what they make is a float again. Conditions cast to floats select
// 1 or 0. Composite operators (softmax, norms) are there twice, as themselves and as their definition, in one class.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/search/egraph.h"

namespace quern {

// The label of each dimension of a tensor or tile; kNoLabel where the extent is 1.
using Dims = std::vector<Label>;
inline constexpr Label kNoLabel = -1;
LabelSet label_set(const Dims& dims);

struct LabelInfo {
  std::string name;  // "k3": made of the name of the input and the dimension that has it
  int input = 0;     // position in graph.inputs and dimension: where the extent of another instance of the
  int dim = 0;       // same program is found
  int64_t extent = 1;
  Label whole_of = kNoLabel;  // a copy of another label, which no loop cuts (whole.h)
};

// A composite operator without its operands; ENode.index is its position in Terms::composites.
struct CompositeInfo {
  OpCode code = OpCode::softmax;
  Dims axes;  // ascending
  double eps = 0;
};

struct Terms {
  EGraph egraph;
  std::vector<LabelInfo> labels;
  std::vector<Dims> inputs;    // of the graph's inputs; the leaf of input i is ENode{input, i}
  std::vector<ClassId> goals;  // of the graph's outputs
  std::vector<Dims> goal_dims;
  // Constants that are products of extents (the count of a mean): ENode{constant, 1 + position}.
  std::vector<LabelSet> counts;
  std::vector<CompositeInfo> composites;
  // Values of the graph (not decomposed), as classes, and their dtypes; nothing of literals and of casts that
  // change no value.
  std::vector<ClassId> of_value;
  std::vector<std::optional<DType>> dtype_of_value;
  std::vector<ClassId> of_definitions;               // values of the decomposed graph, as classes
  std::vector<std::optional<DType>> softmax_dtypes;  // of these values (core/graph/decompose.h)
};

// f(dtype) for each value of the graph that the class is.
template <class F>
void for_each_dtype(const Terms& terms, ClassId id, F f) {
  const ClassId own = terms.egraph.find(id);
  for (size_t value = 0; value < terms.of_value.size(); ++value)
    if (terms.dtype_of_value[value] && terms.of_value[value] >= 0 &&
        terms.egraph.find(terms.of_value[value]) == own)
      f(*terms.dtype_of_value[value]);
}

// In which dtype one kernel hands a value on to another: in 16 bits if that is how the graph has it, else in f32.
DType dtype_between_kernels(const Terms& terms, ClassId id);

// UNSUPPORTED with the reason when the piece has an operator or dimension that terms cannot express.
Result<Terms> make_terms(const Graph& graph);

// Whether the node is a cast between floats that changes no value: to f32, or to the dtype that it has.
bool is_exact_cast(const Graph& graph, ValueId id);

// Whether the node is a cast of floats to integers that nothing but casts to floats read.
bool is_truncation(const Graph& graph, ValueId id);

// Whether the node is a cast that every piece which reads it has for itself: one of these two, and no output.
bool belongs_to_readers(const Graph& graph, ValueId id);

// Why an operator can be in no piece: movement that is more than renaming, what computes with integers. "" when it can.
std::string outside_reason(const Graph& graph, ValueId id);

}  // namespace quern
