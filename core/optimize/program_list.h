// Programs that are ranked as texts, for whoever measures them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/optimize/program.h"
#include "core/optimize/ranking.h"

namespace quern {

// Refers to all that it is made of.
class ProgramList {
 public:
  // `sources`: hashes of the CUDA texts that are not listed; those that are come to them. `refuse`: what does not fit.
  ProgramList(const Graph& graph, const std::vector<Candidate>& candidates, Ranking& ranking,
              const Constraints& constraints, RefuseKernel refuse, const Target& target,
              std::set<Hash128>& sources)
      : graph_(graph),
        candidates_(candidates),
        ranking_(ranking),
        constraints_(constraints),
        refuse_(std::move(refuse)),
        target_(target),
        sources_(sources) {}

  // At most `most`, without code: those that are ranked in turn with up to `varied` ones that vary all kernels of this candidate.
  // Where the first has f32 products by 3xTF32, whose errors may turn out to be too large, the last are some with exact ones.
  std::vector<Program> of(const std::vector<Implementation>& ranked, size_t candidate, size_t most,
                          size_t varied);

 private:
  // Schedules may differ in what the emitter makes nothing of.
  void add(const std::vector<Implementation>& programs, size_t most);
  std::vector<Implementation> without_tf32x3(const Implementation& first);

  const Graph& graph_;
  const std::vector<Candidate>& candidates_;
  Ranking& ranking_;
  const Constraints& constraints_;
  const RefuseKernel refuse_;
  const Target& target_;
  std::set<Hash128>& sources_;
  std::map<size_t, std::string> mugraphs_;
  std::vector<Program> listed_;
};

}  // namespace quern
