// What the tests of the search share: graphs as text, saturated terms.
#pragma once

#include "core/graph/text.h"
#include "core/search/saturate.h"
#include "core/search/universe.h"
#include "tests/support/test.h"

namespace quern {

inline Graph graph_of(std::string_view text) {
  Result<Graph> graph = parse_graph(text);
  assert_ok(graph);
  return std::move(*graph);
}

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

}  // namespace quern
