// Which kernels have more values than a thread has registers, as ptxas says, so that nothing like them is
// compiled again.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "core/codegen/mugraph_emitter.h"

namespace quern {

class CrowdedKernels {
 public:
  // Takes in what `log`, of ptxas with -v, says about the program of muGraph and schedule. Bytes of a thread
  // that are on the stack, over all kernels, for want of registers or because they are an array that is not
  // unrolled.
  int64_t add(const MuGraph& mugraph, const Schedule& schedule, const EmittedMuGraph& emitted,
              const std::string& log);
  // Whether one of the kernels has the tiles, warps and data paths of one that was crowded.
  bool expects(const MuGraph& mugraph, const Schedule& schedule) const;

 private:
  std::set<std::string> crowded_;
};

}  // namespace quern
