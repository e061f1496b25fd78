// What the choices of a program's blocks cost, greedy and optimal, as lines to read.
#pragma once

#include "core/codegen/mugraph_emitter.h"
#include "core/search/search.h"

namespace quern {

// `emitted` is the program of muGraph and schedule; `optimized` if an optimizer made its choices.
std::string explain_choices(const Graph& graph, const MuGraph& mugraph, const Schedule& schedule,
                            const Target& target, const EmittedMuGraph& emitted, bool optimized);

// The best-ranked schedule with which the candidate can be emitted, and the choices of that program; or why
// there is none. `optimizer` may be null.
std::string explain_candidate(const Graph& graph, const Candidate& candidate, const Target& target,
                              Optimizer* optimizer, bool allow_tf32 = false);

}  // namespace quern
