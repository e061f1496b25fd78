#include "core/schedule/enumerate.h"

#include <algorithm>

#include "core/mugraph/edit.h"

namespace quern {

namespace {

constexpr size_t kMostKernels = 256;  // known at a time

// Schedules of some kernels that follow each other, best first.
using Place = std::vector<std::vector<KernelSchedule>>;

// Of a kernel.
bool is_refused(const MuGraph& alone, const KernelSchedule& schedule, bool joined,
                const RefuseKernel& refuse) {
  auto applied = [&] {
    KernelSchedule own = schedule;
    own.pdl = own.joined = false;
    const auto cut = apply_schedule(alone, {{own}});
    check(cut.ok(), "a schedule of the enumeration does not fit its kernel");
    return cut->kernels[0];
  };
  return refuse && refuse(schedule, joined, applied);
}

// Ways to share launches none of whose kernels is refused.
void add_joined(const std::vector<KernelChoices>& kernels, const std::vector<JoinedWay>& ways,
                const RefuseKernel& refuse, Place& place) {
  for (const JoinedWay& way : ways) {
    bool refused = false;
    for (size_t k = 0; k < kernels.size() && !refused; ++k)
      refused = is_refused(kernels[k].alone, way.schedules[k], is_joined({way.schedules}, k), refuse);
    if (!refused) place.push_back(way.schedules);
  }
}

// Kernel by kernel, without what is refused: the others are at their best meanwhile. Up to `most` in all.
void add_separate(const std::vector<KernelChoices>& kernels, const RefuseKernel& refuse, size_t most,
                  Place& place) {
  auto next = [&](const KernelChoices& kernel, size_t i) {
    while (i < kernel.schedules.size() && is_refused(kernel.alone, kernel.schedules[i], false, refuse)) ++i;
    return i;
  };
  std::vector<KernelSchedule> best;
  std::vector<size_t> first;
  for (const KernelChoices& kernel : kernels) {
    first.push_back(next(kernel, 0));
    if (first.back() == kernel.schedules.size()) return;
    best.push_back(kernel.schedules[first.back()]);
  }
  if (place.empty()) place.push_back(best);
  for (size_t varied = 0; varied < kernels.size(); ++varied) {
    const KernelChoices& kernel = kernels[varied];
    for (size_t i = next(kernel, first[varied] + 1); i < kernel.schedules.size() && place.size() < most;
         i = next(kernel, i + 1)) {
      place.push_back(best);
      place.back()[varied] = kernel.schedules[i];
    }
  }
}

}  // namespace

ScheduleEnumerator::KernelNumber ScheduleEnumerator::number_of(const MuGraph& mugraph,
                                                               const KernelSchedule& own, size_t kernel) {
  MuGraph alone = kernel_alone(mugraph, mugraph.kernels[kernel]);
  const auto known = std::find_if(kernels_.begin(), kernels_.end(), [&](const Kernel& other) {
    return other.own == own && other.alone == alone;
  });
  if (known != kernels_.end()) return static_cast<KernelNumber>(known - kernels_.begin());
  std::vector<KernelSchedule> schedules = kernel_schedules(alone, own, target_, options_);
  kernels_.push_back({std::move(alone), own, std::move(schedules)});
  return kernels_.size() - 1;
}

std::vector<KernelChoices> ScheduleEnumerator::choices_of(const std::vector<KernelNumber>& kernels) const {
  std::vector<KernelChoices> choices;
  for (KernelNumber number : kernels) choices.push_back({kernels_[number].alone, kernels_[number].schedules});
  return choices;
}

const std::vector<JoinedWay>& ScheduleEnumerator::ways_of(const std::vector<KernelNumber>& neighbours) {
  const auto [at, fresh] = neighbours_.try_emplace(neighbours);
  if (fresh) at->second = joined_ways(choices_of(neighbours), target_);
  return at->second;
}

std::vector<Schedule> ScheduleEnumerator::enumerate(const MuGraph& mugraph, size_t most,
                                                    const RefuseKernel& refuse) {
  if (kernels_.size() > kMostKernels) {
    kernels_.clear();
    neighbours_.clear();
  }
  Schedule own = default_schedule(mugraph);
  // Behind the first, kernels are there when the last blocks of the one in front end.
  for (size_t k = 1; k < mugraph.kernels.size(); ++k)
    own.kernels[k].pdl = target_.tma && mugraph.kernels[k].custom;
  // Independent neighbours are one place of the schedule, where they may share a launch.
  std::vector<Place> places;
  for (const auto& [k, end] : independent_neighbours(mugraph)) {
    Place& place = places.emplace_back();
    std::vector<KernelNumber> numbers;
    for (size_t other = k; other < end && mugraph.kernels[other].custom; ++other) {
      numbers.push_back(number_of(mugraph, own.kernels[other], other));
      if (kernels_[numbers.back()].schedules.empty()) return {};
    }
    const std::vector<KernelChoices> choices = choices_of(numbers);
    if (numbers.size() > 1) add_joined(choices, ways_of(numbers), refuse, place);
    if (numbers.empty())
      place.push_back({own.kernels[k]});
    else
      add_separate(choices, refuse, most, place);
    if (place.empty()) return {};
  }
  size_t longest = 1;
  for (const Place& place : places) longest = std::max(longest, place.size());
  std::vector<Schedule> out;
  for (size_t i = 0; i < longest; ++i)
    for (size_t p = 0; p < places.size() && out.size() < most; ++p) {
      if (i >= places[p].size() || (i == 0 && p > 0)) continue;
      Schedule schedule;
      for (size_t other = 0; other < places.size(); ++other) {
        const auto& way = places[other][other == p ? i : 0];
        schedule.kernels.insert(schedule.kernels.end(), way.begin(), way.end());
      }
      out.push_back(std::move(schedule));
    }
  return out;
}

std::vector<Schedule> enumerate_schedules(const MuGraph& mugraph, const Target& target, bool allow_tf32) {
  return ScheduleEnumerator(target, {.allow_tf32 = allow_tf32}).enumerate(mugraph);
}

}  // namespace quern
