// Runs a muGraph on the host in the arithmetic of its kernels (core/codegen/kernel_domain.h).
#pragma once

#include <string>

#include "core/codegen/kernel_domain.h"
#include "core/schedule/schedule.h"
#include "core/verify/reference.h"

namespace quern {

class Interpreter {
 public:
  // As emitted with `schedule`. `mugraph` is cut by it already (apply_schedule), note_rounded_values has seen
  // it, and it may have been shrunk since. Without a schedule in f32: nothing approximate, no operand
  // rounded.
  Interpreter(const MuGraph& mugraph, const Schedule* schedule);

  // INVALID_GRAPH as evaluate_mugraph.
  Result<std::vector<RealTensor>> run(const std::vector<RealTensor>& inputs,
                                      SumOrder order = SumOrder::elements) const;
  // Programs of the same text compute the same.
  std::string text() const;

 private:
  void lower(size_t kernel, const KernelSchedule* schedule, bool approximate);

  MuGraph mugraph_;
  std::vector<KernelForm> forms_;  // by kernel
  mutable TileOperators operators_;
};

}  // namespace quern
