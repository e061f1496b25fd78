// What the tests of the search share: graphs as text, saturated terms.
#pragma once

#include "core/search/generator.h"
#include "core/search/saturate.h"
#include "core/search/universe.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace quern {

inline Graph example(const std::string& name) {
  return graph_of(read_test_file(test_root() / "examples" / (name + ".qg")));
}

inline Terms saturated_terms(const Graph& graph) {
  Result<Terms> terms = make_terms(graph);
  assert_ok(terms);
  saturate(terms->egraph, all_axioms());
  for (ClassId& goal : terms->goals) goal = terms->egraph.find(goal);
  return std::move(*terms);
}

// f(dag) for every way to compute what the terms are of, within the bound.
template <class F>
void for_each_dag(const Terms& terms, int bound, F f) {
  const Universe universe(terms);
  GeneratorOptions options;
  options.bound = bound;
  options.threads = 1;
  GeneratorState state;
  assert_ok(generate(terms, universe, options, state, [&](size_t, const Dag& dag) { f(dag); }));
}

}  // namespace quern
