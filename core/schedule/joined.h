// Which independent neighbours of a muGraph are to share a launch (core/kernel/join.h), and by which
// schedules: one that is best alone may take registers or shared memory that the others' blocks miss.
#pragma once

#include "core/schedule/schedule.h"

namespace quern {

// Schedules of kernels [first, first + schedules.size()) of a muGraph, joined as they say.
struct JoinedWay {
  double us = 0;  // of their launches
  std::vector<KernelSchedule> schedules;
};

// How many kernels from `first` on are block graphs that do not depend on each other.
size_t independent_kernels(const MuGraph& mugraph, size_t first);

// Ways for the kernels from `first` on, best first, the best way to launch each by itself among them.
// `choices`: of each of them, best first when alone, at least one, without pdl where the kernel in front of
// the first depends on none.
std::vector<JoinedWay> joined_ways(const MuGraph& mugraph, size_t first,
                                   const std::vector<std::vector<KernelSchedule>>& choices,
                                   const Target& target);

}  // namespace quern
