#include "core/optimize/ranking.h"

#include <algorithm>

#include "core/schedule/enumerate.h"

namespace quern {

namespace {

// By the model of schedules, over the custom kernels: those of library operators are the same in every
// candidate. `applied` is cut as the schedule says.
double modelled_us(const MuGraph& applied, const Schedule& schedule, const Target& target) {
  double us = 0;
  for (size_t k = 0; k < applied.kernels.size(); ++k)
    if (applied.kernels[k].custom)
      us += modelled_time(applied, applied.kernels[k], schedule.kernels[k], target);
  return us;
}

}  // namespace

std::vector<Implementation> rank_implementations(const std::vector<Candidate>& candidates,
                                                 const Target& target, const Constraints& constraints,
                                                 size_t most) {
  std::vector<Implementation> out;
  for (size_t i = 0; i < candidates.size(); ++i) {
    size_t taken = 0;
    for (Schedule& schedule : enumerate_schedules(candidates[i].mugraph, target)) {
      if (taken == most) break;
      auto applied = apply_schedule(candidates[i].mugraph, schedule);
      check(applied.ok(), "a schedule of the enumeration does not fit its muGraph");
      if (!constraints.empty() && !constraints.allow(*applied)) continue;
      const double us = modelled_us(*applied, schedule, target);
      out.push_back({i, std::move(schedule), us});
      ++taken;
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Implementation& a, const Implementation& b) { return a.us < b.us; });
  return out;
}

}  // namespace quern
