#include "core/optimize/ranking.h"

#include <algorithm>

#include "core/schedule/enumerate.h"

namespace quern {

namespace {

// Of the custom kernels; those of library operators are the same in every candidate.
double modelled_us(const MuGraph& mugraph, const Schedule& schedule, const Target& target) {
  auto applied = apply_schedule(mugraph, schedule);
  check(applied.ok(), "a schedule of the enumeration does not fit its muGraph");
  double us = 0;
  for (size_t k = 0; k < applied->kernels.size(); ++k)
    if (applied->kernels[k].custom)
      us += modelled_time(*applied, applied->kernels[k], schedule.kernels[k], target);
  return us;
}

}  // namespace

std::vector<Implementation> rank_implementations(const std::vector<Candidate>& candidates,
                                                 const Target& target, size_t most) {
  std::vector<Implementation> out;
  for (size_t i = 0; i < candidates.size(); ++i) {
    std::vector<Schedule> schedules = enumerate_schedules(candidates[i].mugraph, target);
    if (schedules.size() > most) schedules.resize(most);
    for (Schedule& schedule : schedules) {
      const double us = modelled_us(candidates[i].mugraph, schedule, target);
      out.push_back({i, std::move(schedule), us});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Implementation& a, const Implementation& b) { return a.us < b.us; });
  return out;
}

}  // namespace quern
