#include "core/schedule/register_estimate.h"

#include <algorithm>

namespace quern {

namespace {

constexpr double kFixed = 32, kProducer = 4;  // addresses, counters, predicates; for stages that go round
constexpr double kMostUnrolled = 300;         // words of a thread that compilers keep in registers

// Loads of operands that ptxas moves in front of the first product, as far as there are registers.
constexpr double kHoisted = 0.7;

}  // namespace

// The other weights were fitted to what ptxas says of 1000 kernels (docs/results/model.md).
double estimate_registers(const RegisterNeeds& needs, const KernelSchedule& schedule) {
  double own = needs.wgmma ? wgmma_registers(needs.product_sums + needs.product_middle)
                           : kFixed + 0.75 * needs.product_sums + 1.4 * needs.product_middle +
                                 (schedule.producer ? kProducer : 0);
  own += (schedule.overlap ? 1 : 0.13) * needs.fragments + 3 * needs.split + needs.held + 0.6 * needs.made;
  // Between products that overlap results are worked on where they are, and packed: 106 to 186 as ptxas says.
  const double middle = schedule.overlap ? 0 : 0.3 * needs.block_middle;
  own +=
      (0.18 * needs.block_sums + middle + 0.85 * (needs.block_kept + needs.loop_kept) + 0.6 * needs.turned) /
      schedule.workers();
  own += 1.2 * needs.fma_sums + 1.5 * needs.fma_operands;  // as many again let ptxas choose their banks
  if (schedule.stages == 0) own += needs.loaded * (schedule.prefetch ? 0.88 : 0.1);
  const double room = static_cast<double>(schedule.most_registers()) - own;
  own += std::clamp(kHoisted * needs.once_fragments, 0.0, std::max(0.0, room));
  // What is not unrolled is an array in memory.
  own += needs.once_loaded > kMostUnrolled ? needs.once_loaded : needs.parted;
  return std::max(own, kFixed + needs.before_loop);
}

}  // namespace quern
