#include "core/optimize/explain.h"

#include "core/optimize/program_model.h"
#include "core/optimize/ranking.h"

namespace quern {

namespace {

constexpr size_t kMostSchedules = 16;  // that are tried

}  // namespace

std::string explain_choices(const Graph& graph, const MuGraph& mugraph, const Schedule& schedule,
                            const Target& target, const EmittedMuGraph& emitted, bool optimized) {
  if (!optimized) {
    std::string out = "choices are greedy: this build has no libz3\n";
    for (const EmittedBlock& block : emitted.blocks) out += explain(block);
    return out;
  }
  const auto greedy = emit_mugraph(graph, mugraph, schedule, target);
  return greedy ? explain_choices(*greedy, emitted)
                : "with greedy choices it cannot be emitted: " + greedy.status().message() + "\n";
}

std::string explain_candidate(const Graph& graph, const Candidate& candidate, const Target& target,
                              Optimizer* optimizer, bool allow_tf32) {
  std::string refusal = "none fits";
  for (const Implementation& each :
       rank_implementations(graph, {candidate}, target, {}, kMostSchedules, allow_tf32)) {
    const auto emitted = emit_mugraph(graph, candidate.mugraph, each.schedule, target, optimizer);
    if (emitted)
      return print_schedule(with_choices(each.schedule, *emitted)) +
             ProgramModel::make(graph, candidate.mugraph, target)->print(each.schedule) +
             explain_choices(graph, candidate.mugraph, each.schedule, target, *emitted, optimizer != nullptr);
    refusal = emitted.status().message();
  }
  return "no schedule: " + refusal + "\n";
}

}  // namespace quern
