// Whether a graph that the search has rewritten computes what it computed, and what the search then finds.
#pragma once

#include "core/graph/text.h"
#include "core/search/search.h"
#include "core/verify/reference.h"
#include "core/verify/verifier.h"
#include "tests/search/examples.h"
#include "tests/support/random_graph.h"

namespace quern {

// Elements of the outputs, in f64: of the same inputs, by name and by bit.
inline void assert_computes_the_same(const Graph& graph, const Graph& other) {
  std::vector<RealTensor> inputs;
  const std::vector<TensorDesc> descs = graph.input_descs(), others = other.input_descs();
  assert_int_equal(descs.size(), others.size());
  for (size_t i = 0; i < descs.size(); ++i) {
    assert_true(descs[i].shape == others[i].shape && descs[i].strides == others[i].strides &&
                descs[i].dtype == others[i].dtype);
    assert_string_equal(graph.node(graph.inputs[i]).name.c_str(), other.node(other.inputs[i]).name.c_str());
    inputs.push_back(read_buffer(descs[i], random_buffer(descs[i], 70 + i).data()));
  }
  const std::vector<RealTensor> expected = evaluate_reference(graph, inputs),
                                made = evaluate_reference(other, inputs);
  assert_int_equal(expected.size(), made.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    assert_true(graph.node(graph.outputs[o]).type.shape == other.node(other.outputs[o]).type.shape);
    for (size_t e = 0; e < expected[o].size(); ++e)
      if (expected[o][e] != made[o][e] &&
          std::abs(expected[o][e] - made[o][e]) > 1e-12 * std::abs(expected[o][e]))
        fail_test(print_graph(graph) + "became\n" + print_graph(other) + "element " + std::to_string(e) +
                  " of output " + std::to_string(o) + ": " + std::to_string(made[o][e]) + " instead of " +
                  std::to_string(expected[o][e]));
  }
}

// Of many random graphs; `rewrite` gives the other one.
template <class Rewrite>
void assert_random_graphs_compute_the_same(Rewrite rewrite) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Graph graph = random_graph(seed);
    assert_computes_the_same(graph, rewrite(graph));
  }
}

// Whether the rewrite leaves the graph as it is.
template <class Rewrite>
void assert_stays(const Graph& graph, Rewrite rewrite) {
  assert_string_equal(print_graph(rewrite(graph)).c_str(), print_graph(graph).c_str());
}

// The best muGraph of a search for a graph, which computes it.
inline MuGraph best_of_search(const Graph& graph) {
  auto found = search(graph, **find_target("sm_90a"), {});
  assert_ok(found);
  assert_false(found->candidates.empty());
  MuGraph best = std::move(found->candidates[0].mugraph);
  assert_int_equal(verify(graph, best).verdict, Verdict::accepted);
  return best;
}

}  // namespace quern
