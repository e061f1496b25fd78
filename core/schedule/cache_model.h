// What the L2 cache still has when kernels that run one after the other ask for it.
#pragma once

#include <map>

#include "core/base/target.h"
#include "core/mugraph/mugraph.h"

namespace quern {

class CacheModel {
 public:
  explicit CacheModel(const Target& target);

  // Bytes that come from DRAM, or go there.
  double read(int64_t buffer, double bytes);
  double write(int64_t buffer, double bytes, bool output);

 private:
  double missing(double passed) const;
  void touch(int64_t buffer, double bytes);

  const double bytes_;
  double passed_ = 0;
  std::map<int64_t, double> last_;
};

// By tensor that a kernel of the muGraph loads or stores: the share of it that comes from DRAM, or goes there.
// Inputs and outputs do so wholly; what kernels hand on, as far as there is no room for it.
std::map<int32_t, double> shares_of_dram(const MuGraph& mugraph, const MuKernel& kernel,
                                         const Target& target);

}  // namespace quern
