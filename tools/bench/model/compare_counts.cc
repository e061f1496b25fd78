// The model's counts of the programs of a search against those of the kernels that they are lowered to.
#include <cstdio>
#include <cstdlib>
#include <map>

#include "core/graph/text.h"
#include "tools/bench/model/agreement.h"
#include "tools/bench/need.h"

int main(int argc, char** argv) {
  using namespace quern;
  if (argc < 2) stop(Status(ErrorCode::INVALID_ARGUMENT, "usage: compare_counts GRAPH.qg [PROGRAMS (30)]"));
  const Graph graph = need(parse_graph(read_file(argv[1])));
  const Target& target = *need(find_target("sm_90a"));
  const Agreement found = compare_counts(graph, target, argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 30);
  std::map<std::string, size_t> kinds;
  for (const Disagreement& each : found.disagreements) {
    if (++kinds[each.what] <= 3) std::printf("  %s\n", print(each).c_str());
  }
  const auto programs = static_cast<double>(std::max<size_t>(1, found.programs));
  std::printf(
      "%s: %zu of %zu programs (%zu refused), %zu kernels, %zu disagreements; lowered in %.1f ms, counted in "
      "%.1f ms each\n",
      argv[1], found.programs, found.ranked, found.refused, found.kernels, found.disagreements.size(),
      found.lower_ms / programs, found.count_ms / programs);
  return found.disagreements.empty() ? 0 : 1;
}
