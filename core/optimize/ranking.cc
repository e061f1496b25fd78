#include "core/optimize/ranking.h"

#include <algorithm>

#include "core/schedule/enumerate.h"
#include "core/schedule/model.h"

namespace quern {

std::vector<Implementation> rank_implementations(const std::vector<Candidate>& candidates,
                                                 const Target& target, const Constraints& constraints,
                                                 size_t most, bool allow_tf32) {
  std::vector<Implementation> out;
  for (size_t i = 0; i < candidates.size(); ++i) {
    size_t taken = 0;
    for (Schedule& schedule : enumerate_schedules(candidates[i].mugraph, target, allow_tf32)) {
      if (taken == most) break;
      const MuGraph& mugraph = candidates[i].mugraph;
      auto us = modelled_time(mugraph, schedule, target);
      check(us.ok(), "a schedule of the enumeration does not fit its muGraph");
      if (!constraints.empty() && !constraints.allow(*apply_schedule(mugraph, schedule))) continue;
      out.push_back({i, std::move(schedule), *us});
      ++taken;
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Implementation& a, const Implementation& b) { return a.us < b.us; });
  return out;
}

}  // namespace quern
