#include "core/schedule/joined.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/mugraph/dependence.h"
#include "core/schedule/model.h"

namespace quern {

namespace {

constexpr size_t kMostKernels = 6;   // of a launch
// Of a kernel, with one number of threads and one tile: tiles that are too large for a kernel alone may be
// best beside others.
constexpr size_t kMostChoices = 2;
constexpr size_t kMostWays = 6;

double block_bytes(const BlockWork& work) {
  return work.once_bytes + work.loop_bytes * static_cast<double>(work.trip_count);
}

// How many kernels from `first` on are block graphs that do not depend on each other.
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

class Joiner {
 public:
  Joiner(const std::vector<KernelChoices>& kernels, const Target& target) : target_(target) {
    for (const KernelChoices& kernel : kernels) {
      std::map<std::pair<int, TileExtents>, size_t> taken;
      std::vector<KernelSchedule>& choices = choices_.emplace_back();
      for (const KernelSchedule& each : kernel.schedules)
        if (taken[{each.threads(), each.tile}]++ < kMostChoices) choices.push_back(each);
      std::vector<BlockWork>& works = works_.emplace_back();
      for (KernelSchedule schedule : choices) {
        schedule.pdl = false;
        const auto cut = apply_schedule(kernel.alone, {{schedule}});
        check(cut.ok(), "a schedule of the enumeration does not fit its kernel");
        works.push_back(block_work(*cut, cut->kernels[0], schedule, target));
      }
      std::vector<double>& times = alone_.emplace_back();
      for (size_t c = 0; c < choices.size(); ++c)
        times.push_back(modelled_block(works[c], choices[c], target).us);
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
  JoinedWay single(size_t k) const { return {alone_[k][0], {choices_[k][0]}}; }

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
    const KernelTime time = modelled_joined(works, out.schedules, target_);
    out.us = time.us;
    // The compiler finds registers for all parts, and must leave as many as the model counts on.
    double blocks = 0;
    for (const BlockWork& work : works) blocks += work.blocks;
    const auto wanted = static_cast<int64_t>(std::ceil(blocks / target_.sms));
    if (const int64_t least = std::min(time.blocks_per_sm, wanted); least > 1)
      for (KernelSchedule& schedule : out.schedules)
        schedule.min_blocks = std::max(schedule.min_blocks, static_cast<int>(least));
    return out;
  }

  // Of the choices with as many threads the one that `is_better` than all others; nothing if there are none.
  template <class Better>
  std::optional<size_t> choice_of(size_t k, int threads, const Better& is_better) const {
    std::optional<size_t> best;
    for (size_t c = 0; c < works_[k].size(); ++c)
      if (choices_[k][c].threads() == threads && (!best || is_better(works_[k][c], works_[k][*best])))
        best = c;
    return best;
  }

  // The same launch with the best choices of all but `main`, one after the other.
  JoinedWay improved(size_t first, size_t end, size_t main, std::vector<size_t> picks) const {
    const int threads = choices_[main][picks[main - first]].threads();
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
    return best;
  }

  // One launch of all: for each choice of the kernel that takes longest the others at their best alone, or
  // with blocks that bring about as much, and what improves on that. What takes longer alone than all of them one after the
  // other is none of these choices.
  std::vector<JoinedWay> launches(size_t first, size_t end) const {
    std::vector<JoinedWay> ways;
    for (size_t k = first; k < end; ++k)
      if (works_[k][0].cluster > 1) return ways;
    size_t main = first;
    double separate = 0;
    for (size_t k = first; k < end; ++k) {
      separate += alone_[k][0];
      if (alone_[k][0] > alone_[main][0]) main = k;
    }
    for (size_t c = 0; c < works_[main].size(); ++c) {
      if (alone_[main][c] > separate) continue;
      const double bytes = block_bytes(works_[main][c]);
      auto nearer = [&](const BlockWork& a, const BlockWork& b) {
        return std::fabs(block_bytes(a) - bytes) < std::fabs(block_bytes(b) - bytes);
      };
      auto never = [](const BlockWork&, const BlockWork&) { return false; };
      std::vector<size_t> alone, alike;
      for (size_t k = first; k < end; ++k) {
        const int threads = choices_[main][c].threads();
        const auto own = k == main ? c : choice_of(k, threads, never);
        if (!own) break;
        alone.push_back(*own);
        alike.push_back(k == main ? c : *choice_of(k, threads, nearer));
      }
      if (alone.size() < end - first) continue;
      for (const std::vector<size_t>& picks : {alone, alike})
        if (JoinedWay way = improved(first, end, main, picks); std::isfinite(way.us))
          ways.push_back(std::move(way));
    }
    std::stable_sort(ways.begin(), ways.end(),
                     [](const JoinedWay& a, const JoinedWay& b) { return a.us < b.us; });
    ways.resize(std::min(ways.size(), kMostWays));
    return ways;
  }

  const Target& target_;
  std::vector<std::vector<KernelSchedule>> choices_;
  std::vector<std::vector<BlockWork>> works_;  // by kernel and choice
  std::vector<std::vector<double>> alone_;     // us of these
  std::vector<JoinedWay> wholes_;
};

}  // namespace

std::vector<Neighbours> independent_neighbours(const MuGraph& mugraph) {
  std::vector<Neighbours> out;
  for (size_t k = 0; k < mugraph.kernels.size(); k = out.back().end)
    out.push_back({k, k + std::max<size_t>(1, independent_kernels(mugraph, k))});
  return out;
}

Schedule kernels_of(const Schedule& schedule, const Neighbours& of) {
  const auto begin = schedule.kernels.begin();
  return {{begin + static_cast<ptrdiff_t>(of.first), begin + static_cast<ptrdiff_t>(of.end)}};
}

std::vector<JoinedWay> joined_ways(const std::vector<KernelChoices>& kernels, const Target& target) {
  return Joiner(kernels, target).run();
}

}  // namespace quern
