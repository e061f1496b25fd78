// The hand-written muGraphs of tests/golden/mugraph, and the graphs they compute.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/mugraph/texts.h"

namespace quern {

// A file NAME-WHAT.qmu computes the graph NAME.qg beside it or in examples/.
struct MuGraphFile {
  std::string name;  // "gqa_small-online"
  std::string text;  // without the comment at its head
  MuGraph mugraph;
  Graph graph;
};

inline std::string without_head_comment(std::string text) {
  while (!text.empty() && text[0] == '#') text.erase(0, text.find('\n') + 1);
  return text;
}

inline Graph graph_named(const std::string& name) {
  std::filesystem::path path = test_root() / "tests/golden/mugraph" / (name + ".qg");
  if (!std::filesystem::exists(path)) path = test_root() / "examples" / (name + ".qg");
  Result<Graph> graph = parse_graph(read_test_file(path));
  if (!graph) fail_test(path.string() + ": " + graph.status().message());
  return std::move(*graph);
}

// In the order of their names.
inline std::vector<MuGraphFile> mugraph_files() {
  std::vector<MuGraphFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(test_root() / "tests/golden/mugraph")) {
    if (entry.path().extension() != ".qmu") continue;
    MuGraphFile file;
    file.name = entry.path().stem();
    file.text = without_head_comment(read_test_file(entry.path()));
    Result<MuGraph> mugraph = parse_mugraph(file.text);
    if (!mugraph) fail_test(file.name + ": " + mugraph.status().message());
    file.mugraph = std::move(*mugraph);
    file.graph = graph_named(file.name.substr(0, file.name.find('-')));
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

}  // namespace quern
