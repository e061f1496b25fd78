// Programs that are ranked as texts, for whoever measures them.
#pragma once

#include <set>
#include <vector>

#include "core/base/hash.h"
#include "core/optimize/program.h"
#include "core/optimize/ranking.h"

namespace quern {

// The first `most` of these programs whose kernels' texts are in `sources` yet for none, without code: schedules may differ in what the
// emitter makes nothing of. Adds the texts.
std::vector<Program> texts_of(const Graph& graph, const std::vector<Candidate>& candidates,
                              const std::vector<Implementation>& programs, const Target& target, size_t most,
                              std::set<Hash128>& sources);

}  // namespace quern
