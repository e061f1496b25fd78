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

// How many kernels from `first` on are block graphs that do not depend on each other.
size_t independent_kernels(const MuGraph& mugraph, size_t first);

// A kernel alone (kernel_alone), and its schedules, at least one, best first.
struct KernelChoices {
  const MuGraph& alone;
  const std::vector<KernelSchedule>& schedules;
};

// Ways for independent neighbours, best first, the best way to launch each by itself among them. The schedules of the first are
// without pdl where the kernel in front of it depends on none.
std::vector<JoinedWay> joined_ways(const std::vector<KernelChoices>& kernels, const Target& target);

}  // namespace quern
