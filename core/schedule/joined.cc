#include "core/schedule/joined.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/mugraph/dependence.h"
#include "core/mugraph/edit.h"
#include "core/schedule/model.h"

namespace quern {

namespace {

constexpr size_t kMostKernels = 6;   // of a launch
constexpr size_t kMostChoices = 96;  // of a kernel
constexpr size_t kMostWays = 6;

class Joiner {
 public:
  Joiner(const MuGraph& mugraph, size_t first, const std::vector<std::vector<KernelSchedule>>& choices,
         const Target& target)
      : target_(target), choices_(choices) {
    for (size_t k = 0; k < choices.size(); ++k) {
      const MuKernel& kernel = mugraph.kernels[first + k];
      const MuGraph alone = kernel_alone(mugraph, kernel);
      works_.emplace_back();
      for (size_t c = 0; c < std::min(choices[k].size(), kMostChoices); ++c) {
        KernelSchedule schedule = choices[k][c];
        schedule.pdl = false;
        const auto cut = apply_schedule(alone, {{schedule}});
        check(cut.ok(), "a schedule of the enumeration does not fit its kernel");
        works_[k].push_back(block_work(*cut, cut->kernels[0], schedule, target));
      }
      alone_.push_back(modelled_block(works_[k][0], choices[k][0], target).us);
    }
  }

  // Where the list of kernels is parted into launches: dynamic programming over where one ends.
  std::vector<JoinedWay> run() {
    const size_t count = choices_.size();
    std::vector<JoinedWay> best(count + 1), separate = best;
    for (size_t end = 1; end <= count; ++end) {
      separate[end] = with(separate[end - 1], single(end - 1));
      best[end] = with(best[end - 1], single(end - 1));
      for (size_t first = end - 1; first-- > 0 && end - first <= kMostKernels;)
        for (const JoinedWay& launch : launches(first, end)) {
          JoinedWay way = with(best[first], launch);
          if (way.us < best[end].us) best[end] = way;
          if (first == 0 && end == count) wholes_.push_back(std::move(way));
        }
    }
    std::vector<JoinedWay> ways = {best[count]};
    auto add = [&](const JoinedWay& way) {
      if (std::none_of(ways.begin(), ways.end(),
                       [&](const JoinedWay& other) { return other.schedules == way.schedules; }))
        ways.push_back(way);
    };
    add(separate[count]);
    for (const JoinedWay& way : wholes_) add(way);
    std::stable_sort(ways.begin(), ways.end(),
                     [](const JoinedWay& a, const JoinedWay& b) { return a.us < b.us; });
    return ways;
  }

 private:
  static JoinedWay with(JoinedWay way, const JoinedWay& launch) {
    way.us += launch.us;
    way.schedules.insert(way.schedules.end(), launch.schedules.begin(), launch.schedules.end());
    return way;
  }
  JoinedWay single(size_t k) const { return {alone_[k], {choices_[k][0]}}; }

  // Of kernels [first, first + picks.size()), by these of their choices.
  JoinedWay launch(size_t first, const std::vector<size_t>& picks) const {
    JoinedWay out;
    std::vector<BlockWork> works;
    for (size_t p = 0; p < picks.size(); ++p) {
      works.push_back(works_[first + p][picks[p]]);
      out.schedules.push_back(choices_[first + p][picks[p]]);
      out.schedules[p].pdl = out.schedules[0].pdl;
      out.schedules[p].joined = p > 0;
    }
    out.us = modelled_joined(works, out.schedules, target_).us;
    return out;
  }

  std::optional<size_t> first_of(size_t k, int threads) const {
    for (size_t c = 0; c < works_[k].size(); ++c)
      if (choices_[k][c].threads() == threads) return c;
    return std::nullopt;
  }

  // One launch of all: for each choice of the kernel that takes longest the best of the others, one after the other.
  std::vector<JoinedWay> launches(size_t first, size_t end) const {
    std::vector<JoinedWay> ways;
    for (size_t k = first; k < end; ++k)
      if (works_[k][0].cluster > 1) return ways;
    const size_t main =
        static_cast<size_t>(std::max_element(alone_.begin() + static_cast<std::ptrdiff_t>(first),
                                             alone_.begin() + static_cast<std::ptrdiff_t>(end)) -
                            alone_.begin());
    for (size_t c = 0; c < works_[main].size(); ++c) {
      const int threads = choices_[main][c].threads();
      std::vector<size_t> picks;
      for (size_t k = first; k < end; ++k)
        if (const auto pick = k == main ? c : first_of(k, threads)) picks.push_back(*pick);
      if (picks.size() < end - first) continue;
      JoinedWay best = launch(first, picks);
      for (size_t k = first; k < end; ++k)
        for (size_t other = 0; k != main && other < works_[k].size(); ++other) {
          if (choices_[k][other].threads() != threads) continue;
          std::vector<size_t> changed = picks;
          changed[k - first] = other;
          if (JoinedWay way = launch(first, changed); way.us < best.us) {
            best = std::move(way);
            picks = std::move(changed);
          }
        }
      if (std::isfinite(best.us)) ways.push_back(std::move(best));
    }
    std::stable_sort(ways.begin(), ways.end(),
                     [](const JoinedWay& a, const JoinedWay& b) { return a.us < b.us; });
    ways.resize(std::min(ways.size(), kMostWays));
    return ways;
  }

  const Target& target_;
  const std::vector<std::vector<KernelSchedule>>& choices_;
  std::vector<std::vector<BlockWork>> works_;  // by kernel and choice
  std::vector<double> alone_;
  std::vector<JoinedWay> wholes_;
};

}  // namespace

size_t independent_kernels(const MuGraph& mugraph, size_t first) {
  std::vector<KernelAccesses> accesses;
  for (size_t k = first; k < mugraph.kernels.size() && mugraph.kernels[k].custom; ++k) {
    accesses.push_back(accesses_of(mugraph, mugraph.kernels[k]));
    if (!std::all_of(accesses.begin(), accesses.end() - 1,
                     [&](const KernelAccesses& other) { return independent(other, accesses.back()); }))
      return k - first;
  }
  return accesses.size();
}

std::vector<JoinedWay> joined_ways(const MuGraph& mugraph, size_t first,
                                   const std::vector<std::vector<KernelSchedule>>& choices,
                                   const Target& target) {
  return Joiner(mugraph, first, choices, target).run();
}

}  // namespace quern
