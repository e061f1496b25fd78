// Graph text: what is read prints to something that reads as the same graph, and has a canonical form that is
// its own.
#include "core/graph/canon.h"
#include "core/graph/text.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quern;
  const auto graph = parse_graph(text_of(data, size));
  if (!graph.ok()) return 0;
  const auto again = parse_graph(print_graph(*graph));
  must(again.ok(), "a printed graph can be read");
  const std::string canonical = canonical_text(*graph);
  must(canonical_text(*again) == canonical, "printing keeps the canonical text");
  const auto normal = parse_graph(canonical);
  must(normal.ok() && canonical_text(*normal) == canonical, "the canonical text is its own");
  return 0;
}
