// The schedules that a muGraph may have on a target, best first by the model of model.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/schedule/joined.h"
#include "core/schedule/kernel_schedules.h"
#include "core/schedule/schedule.h"

namespace quern {

// Whether a kernel is out of the question; `joined`: it shares a launch; `applied`: the kernel as the schedule
// cuts it.
using RefuseKernel = std::function<bool(const KernelSchedule& schedule, bool joined,
                                        const std::function<MuKernel()>& applied)>;

// What is known of a kernel, or of independent neighbours, is not looked for again in another muGraph: those that a search
// compares share most of theirs. Asked by one thread at a time.
class ScheduleEnumerator {
 public:
  explicit ScheduleEnumerator(const Target& target, const EnumeratorOptions& options = {})
      : target_(target), options_(options) {}

  // Each fits the muGraph and the target's shared memory and registers. Deterministic; empty only when not even
  // the muGraph's own numbers fit, or all of a kernel's schedules are refused. At most `most`.
  std::vector<Schedule> enumerate(const MuGraph& mugraph, size_t most = SIZE_MAX,
                                  const RefuseKernel& refuse = {});

 private:
  using KernelNumber = size_t;  // in kernels_
  struct Kernel {
    MuGraph alone;
    KernelSchedule own;
    std::vector<KernelSchedule> schedules;
  };

  KernelNumber number_of(const MuGraph& mugraph, const KernelSchedule& own, size_t kernel);
  std::vector<KernelChoices> choices_of(const std::vector<KernelNumber>& kernels) const;
  const std::vector<JoinedWay>& ways_of(const std::vector<KernelNumber>& neighbours);

  const Target& target_;
  const EnumeratorOptions options_;
  std::vector<Kernel> kernels_;
  std::map<std::vector<KernelNumber>, std::vector<JoinedWay>> neighbours_;
};

// All of one muGraph; with `allow_tf32` also those that compute f32 products in tf32.
std::vector<Schedule> enumerate_schedules(const MuGraph& mugraph, const Target& target,
                                          bool allow_tf32 = false);

}  // namespace quern
