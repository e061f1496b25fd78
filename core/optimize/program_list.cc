#include "core/optimize/program_list.h"

#include <algorithm>
#include <map>

#include "core/codegen/mugraph_emitter.h"
#include "core/mugraph/text.h"

namespace quern {

std::vector<Implementation> in_turn(const std::vector<Implementation>& a,
                                    const std::vector<Implementation>& b) {
  std::vector<Implementation> out;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
    for (const std::vector<Implementation>* of : {&a, &b})
      if (i < of->size()) out.push_back((*of)[i]);
  return out;
}

std::vector<Program> texts_of(const Graph& graph, const std::vector<Candidate>& candidates,
                              const std::vector<Implementation>& programs, const Target& target, size_t most,
                              std::set<Hash128>& sources) {
  std::map<size_t, std::string> mugraphs;
  std::vector<Program> out;
  for (const Implementation& program : programs) {
    if (out.size() == most) break;
    const MuGraph& mugraph = candidates[program.candidate].mugraph;
    const auto emitted = emit_mugraph(graph, mugraph, program.schedule, target);
    if (!emitted || !sources.insert(hash128(emitted->source)).second) continue;
    std::string& text = mugraphs[program.candidate];
    if (text.empty()) text = print_mugraph(mugraph);
    out.push_back({text, print_schedule(program.schedule), static_cast<uint64_t>(1000 * program.us), ""});
  }
  return out;
}

}  // namespace quern
