#include "core/schedule/enumerate.h"

#include <algorithm>

#include "core/mugraph/edit.h"

namespace quern {

namespace {

constexpr size_t kMostKernels = 256;  // known at a time

// Schedules of some kernels that follow each other, best first.
using Place = std::vector<std::vector<KernelSchedule>>;

// Without the schedules of these kernels one of which is refused.
void drop_refused(const std::vector<KernelChoices>& kernels, const RefuseKernel& refuse, Place& place) {
  std::erase_if(place, [&](const std::vector<KernelSchedule>& schedules) {
    const Schedule own{schedules};
    for (size_t k = 0; k < kernels.size(); ++k) {
      auto applied = [&] {
        KernelSchedule alone = schedules[k];
        alone.pdl = alone.joined = false;
        const auto cut = apply_schedule(kernels[k].alone, {{alone}});
        check(cut.ok(), "a schedule of the enumeration does not fit its kernel");
        return cut->kernels[0];
      };
      if (refuse(schedules[k], is_joined(own, k), applied)) return true;
    }
    return false;
  });
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
    const size_t count = end - k;
    std::vector<KernelNumber> numbers;
    for (size_t other = k; other < end && mugraph.kernels[other].custom; ++other) {
      numbers.push_back(number_of(mugraph, own.kernels[other], other));
      if (kernels_[numbers.back()].schedules.empty()) return {};
    }
    const std::vector<KernelChoices> choices = choices_of(numbers);
    auto is_full = [&] { return !refuse && place.size() >= most; };
    if (numbers.empty()) place.push_back({own.kernels[k]});
    if (count > 1)
      for (const JoinedWay& way : ways_of(numbers)) place.push_back(way.schedules);
    // Kernel by kernel: the others are at their best meanwhile.
    for (size_t varied = 0; varied < numbers.size(); ++varied)
      for (size_t i = count > 1 ? 1 : 0; i < choices[varied].schedules.size() && !is_full(); ++i) {
        place.push_back({});
        for (size_t other = 0; other < count; ++other)
          place.back().push_back(choices[other].schedules[other == varied ? i : 0]);
      }
    if (refuse) drop_refused(choices, refuse, place);
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
