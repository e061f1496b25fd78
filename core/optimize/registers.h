// Which kernels do not fit: the emitter refuses them, or they have more values than a thread has registers, as
// ptxas says. Nothing like them is tried again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "core/codegen/mugraph_emitter.h"

namespace quern {

// The first kernel by warpgroups that has something on the stack, as `log` of ptxas with -v says; empty if
// none has. No such program may run: ptxas (CUDA 13.0) has been seen to keep the operands of one wgmma where
// values that live through the loop were, so that results are wrong, without a word of it.
std::string spilling_warpgroups(const Schedule& schedule, const std::vector<EmittedBlock>& blocks,
                                const std::string& log);

class UnfitKernels {
 public:
  explicit UnfitKernels(const Target& target) : target_(target) {}

  // The emitter refuses the kernel as the schedule cuts it.
  void add(const MuGraph& mugraph, const Schedule& schedule, size_t kernel);
  // Takes in what `log`, of ptxas with -v, says about the program of muGraph and schedule. Bytes of a thread
  // that are on the stack, over all kernels, for want of registers or because they are an array that is not
  // unrolled.
  int64_t add(const MuGraph& mugraph, const Schedule& schedule, const EmittedMuGraph& emitted,
              const std::string& log);
  // Whether the kernel is like one that was added; `joined`: it shares a launch; `applied`: as its schedule
  // cuts it.
  bool expects(const KernelSchedule& schedule, bool joined, const std::function<MuKernel()>& applied) const;
  // Whether one of the kernels has the tiles, warps and data paths of one that was added.
  bool expects(const MuGraph& mugraph, const Schedule& schedule) const;
  // Whether one of them is of the kind of one that has too few registers, and wants so large a share of its registers
  // that it would be, too, if the model is wrong by as much as it was there.
  bool suspects(const MuGraph& mugraph, const Schedule& schedule) const;

 private:
  const Target& target_;
  std::map<std::string, std::set<std::string>> crowded_, refused_;  // operators and tiles, by schedule
  std::map<std::string, double> fitting_;  // by the kind of kernel: the share below which one may fit
};

}  // namespace quern
