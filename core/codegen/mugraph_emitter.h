// From a muGraph and a schedule to a program: one kernel text a block graph, library operators by the
// baseline emitter, tensors between kernels in the workspace.
#pragma once

#include <map>

#include "core/codegen/baseline.h"
#include "core/codegen/block/lowering.h"
#include "core/schedule/schedule.h"

namespace quern {

// A block of the program: the choices that were made for it (empty where they are the greedy ones) and what
// they come to.
struct EmittedBlock {
  size_t kernel = 0;  // of the muGraph
  BlockChoices choices;
  ProvenChoices proven;                // with an optimizer
  std::vector<int> layout_candidates;  // how many layouts each tensor with a choice may have
  BlockCosts costs;
  std::string function;  // that it became
  std::string again;     // and what computes it again behind that, if anything does (looks_behind)
};

struct EmittedMuGraph : Emitted {
  std::vector<EmittedBlock> blocks;

  // The launches that compute a block graph of the muGraph, by its kernels; none of others.
  std::map<size_t, LaunchRange> launches_of_kernels() const;
};

// `mugraph` computes `graph`, whose inputs and outputs its own are, in order. The plan has tier `modelled`.
// Choices that the schedule leaves open are greedy, or the optimizer's; with those that come back put into
// the schedule (with_choices) the same text is made without it. Deterministic but for the optimizer.
// UNSUPPORTED when an operator, a size or the target's shared memory stands in the way; INVALID_ARGUMENT when
// the schedule does not fit the muGraph. The observer sees every kernel after each pass. `refused` becomes the
// kernel of the muGraph that stands in the way by itself, whatever the others do, if there is one.
Result<EmittedMuGraph> emit_mugraph(const Graph& graph, const MuGraph& mugraph, const Schedule& schedule,
                                    const Target& target, Optimizer* optimizer = nullptr,
                                    const ir::PassObserver& observer = {},
                                    std::optional<size_t>* refused = nullptr);

// One line of what its choices come to; also in the plan's certificate.
std::string explain(const EmittedBlock& block);
// The same program as the greedy rules and as an optimizer have it: a line for each choice of every block.
std::string explain_choices(const EmittedMuGraph& greedy, const EmittedMuGraph& optimal);

// The schedule with the choices that were made.
Schedule with_choices(const Schedule& schedule, const EmittedMuGraph& emitted);

}  // namespace quern
