// Which independent neighbours of a muGraph are to share a launch (core/kernel/join.h), and by which
// schedules: one that is best alone may take registers or shared memory that the others' blocks miss.
#pragma once

#include "core/schedule/schedule.h"

namespace quern {

// Schedules of neighbours, joined as they say.
struct JoinedWay {
  double us = 0;  // of their launches
  std::vector<KernelSchedule> schedules;
};

// Kernels of a muGraph, from the first to in front of `end`.
struct Neighbours {
  size_t first = 0, end = 0;
};
// All kernels in their order: block graphs that do not depend on each other together, which may share a launch, others each alone.
std::vector<Neighbours> independent_neighbours(const MuGraph& mugraph);
Schedule kernels_of(const Schedule& schedule, const Neighbours& of);

// A kernel alone (kernel_alone), and its schedules, at least one, best first.
struct KernelChoices {
  const MuGraph& alone;
  const std::vector<KernelSchedule>& schedules;
};

// Ways for independent neighbours, best first, the best way to launch each by itself among them. The schedules of the first are
// without pdl where the kernel in front of it depends on none.
std::vector<JoinedWay> joined_ways(const std::vector<KernelChoices>& kernels, const Target& target);

}  // namespace quern
