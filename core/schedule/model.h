// How long a scheduled muGraph takes: what bounds each kernel (bytes from DRAM and L2, tensor cores, issue
// slots, special functions, shared memory, and how many of all these are under way at a time).
// The constants were fitted to kernels measured on an H200 (docs/results/model.md).
#pragma once

#include <map>
#include <string>

#include "core/schedule/block_work.h"
#include "core/schedule/schedule.h"

namespace quern {

struct KernelTime {
  double us = 0;              // infinite if the kernel does not fit the target
  double memory_us = 0;       // to bring the bytes
  double compute_us = 0;      // to do the work
  double filling_us = 0;      // until the first iteration has its tiles
  double registers = 0;       // of a thread
  int64_t blocks_per_sm = 1;  // blocks that an SM holds at a time
  int64_t shared_bytes = 0;   // of a block
};

// Of one kernel whose blocks do this work.
KernelTime modelled_block(const BlockWork& work, const KernelSchedule& schedule, const Target& target);

// Of several kernels in one launch (core/kernel/join.h): each block has the registers and the shared memory
// of the largest.
KernelTime modelled_joined(const std::vector<BlockWork>& parts, const std::vector<KernelSchedule>& schedules,
                           const Target& target);

// Of one custom kernel, cut as it is (apply_schedule).
KernelTime modelled_kernel(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                           const Target& target);

// Of the launch that custom kernel number `k` is part of; the muGraph is cut.
KernelTime modelled_launch(const MuGraph& mugraph, const Schedule& schedule, size_t k, const Target& target);

// Of the launches of one muGraph. Its schedules have most of them in common, and each is modelled once. For one thread at a time.
class LaunchTimes {
 public:
  explicit LaunchTimes(const Target& target) : target_(target) {}

  // As modelled_launch().
  const KernelTime& of(const MuGraph& mugraph, const Schedule& schedule, size_t k);
  // Of all launches of custom kernels, one after the other, in microseconds; infinite if one does not fit. The muGraph is cut.
  double sum(const MuGraph& mugraph, const Schedule& schedule);
  // The same of the muGraph that is not cut yet; INVALID_ARGUMENT if the schedule does not fit it.
  Result<double> of_all(const MuGraph& mugraph, const Schedule& schedule);

 private:
  const Target& target_;
  std::map<std::string, KernelTime> known_;  // by all that a launch's time depends on
};

}  // namespace quern
