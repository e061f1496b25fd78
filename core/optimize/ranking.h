// Every implementation of the candidates of a search, best first by the model.
#pragma once

#include <optional>
#include <vector>

#include "core/optimize/program_model.h"
#include "core/schedule/enumerate.h"
#include "core/search/search.h"

namespace quern {

struct Implementation {
  size_t candidate = 0;  // its position in the list
  Schedule schedule;
  double us = 0;
};

// For several rankings of the same candidates, of which the later refuse kernels: what is known of schedules and launches is not
// looked for again. Graph, candidates and target must outlive it.
class Ranking {
 public:
  Ranking(const Graph& graph, const std::vector<Candidate>& candidates, const Target& target,
          const EnumeratorOptions& options = {});
  // As rank_implementations(). `tapered`: of the n-th candidate at most `most` / n, but 8, as what is
  // far behind is hardly ever tried.
  std::vector<Implementation> rank(const Constraints& constraints, size_t most,
                                   const RefuseKernel& refuse = {}, bool tapered = false);
  // For timing kernel by kernel: programs of one candidate of which the first has the second best schedule of every kernel, the next
  // the third best, and so on; what resembles others comes later. None where there is one kernel.
  std::vector<Implementation> vary_all(size_t candidate, const Constraints& constraints, size_t most,
                                       const RefuseKernel& refuse = {});

 private:
  const std::vector<Candidate>& candidates_;
  ScheduleEnumerator schedules_;
  std::vector<std::optional<ProgramModel>> models_;  // none: it cannot be emitted
};

// Positions in the list, but the best schedule of every candidate comes before the others of any: the model may be wrong about one
// of them.
std::vector<size_t> best_of_each_first(const std::vector<Implementation>& ranked);

// Different programs, best first by the model; of those that are nearly the same, the later ones give way to
// what is a little slower, and behind persistent blocks comes the same with a block for each tile. At most
// `most` schedules of each candidate beside these, all within the constraints; with `allow_tf32` those too
// that compute f32 products in tf32; none has a kernel that is refused.
std::vector<Implementation> rank_implementations(const Graph& graph, const std::vector<Candidate>& candidates,
                                                 const Target& target, const Constraints& constraints,
                                                 size_t most, bool allow_tf32 = false,
                                                 const RefuseKernel& refuse = {});

}  // namespace quern
