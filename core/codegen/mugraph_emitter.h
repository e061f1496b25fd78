// From a muGraph and a schedule to a program: one kernel text a block graph, library operators by the
// baseline emitter, tensors between kernels in the workspace.
#pragma once

#include "core/codegen/baseline.h"
#include "core/schedule/schedule.h"

namespace quern {

// `mugraph` computes `graph`, whose inputs and outputs its own are, in order. The plan has tier `modelled`.
// Deterministic. UNSUPPORTED when an operator, a size or the target's shared memory stands in the way;
// INVALID_ARGUMENT when the schedule does not fit the muGraph.
Result<Emitted> emit_mugraph(const Graph& graph, const MuGraph& mugraph, const Schedule& schedule,
                             const Target& target);

}  // namespace quern
