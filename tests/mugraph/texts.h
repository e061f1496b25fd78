// Graphs and muGraphs from texts in tests.
#pragma once

#include <string>
#include <string_view>

#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "tests/support/test.h"

namespace quern {

// They must be valid.
inline Graph graph_of(std::string_view text) {
  auto graph = parse_graph(text);
  if (!graph) fail_test(std::string(text) + graph.status().message());
  return std::move(*graph);
}
inline MuGraph mugraph_of(const std::string& text) {
  auto mugraph = parse_mugraph(text);
  if (!mugraph) fail_test(text + mugraph.status().message());
  return std::move(*mugraph);
}

// The text with `by` wherever `word` stood.
inline std::string with(std::string text, const std::string& word, const std::string& by) {
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += by.size())
    text.replace(at, word.size(), by);
  return text;
}

}  // namespace quern
