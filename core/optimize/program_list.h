// Programs that are ranked as texts, for whoever measures them.
#pragma once

#include <set>
#include <vector>

#include "core/base/hash.h"
#include "core/optimize/program.h"
#include "core/optimize/ranking.h"

namespace quern {

// One of each after the other, until one list has no more.
std::vector<Implementation> in_turn(const std::vector<Implementation>& a,
                                    const std::vector<Implementation>& b);

// The first `most` of these programs, without code, whose CUDA text has no hash in `sources`: schedules may differ in what the emitter
// makes nothing of. Adds their hashes.
std::vector<Program> texts_of(const Graph& graph, const std::vector<Candidate>& candidates,
                              const std::vector<Implementation>& programs, const Target& target, size_t most,
                              std::set<Hash128>& sources);

}  // namespace quern
