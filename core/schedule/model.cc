#include "core/schedule/model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/integers.h"
#include "core/schedule/block_work.h"

namespace quern {

namespace {

constexpr double kClockMhz = 1755;        // H200; the others are close enough
constexpr double kSmBytesPerUs = 112000;  // that a multiprocessor gets from L2: 64 a cycle
constexpr double kMostRegisters = 255;
// Warps get registers from that of a multiprocessor's four quarters where they run; of each lane there:
constexpr int64_t kQuarterRegisters = 512;
// Of the tensor cores' rate: what mma.sync, wgmma and the kernels of the baseline emitter reach.
constexpr double kMmaShare = 0.62, kWgmmaShare = 0.8, kLibraryShare = 0.12;
constexpr double kClusterPlaces = 0.8;  // of the places for blocks, those that clusters find
constexpr double kLibraryUs = 0.8;      // of a kernel of the baseline emitter that does next to nothing
constexpr double kOverlapUs = 0.3;      // what a kernel saves that begins before the one in front ends
// Fitted (docs/results/model.md), as those of block_work.cc:
constexpr double kStartUs = 1.4;     // of a kernel in a CUDA graph: launch, first instruction, drain
constexpr double kLatencyUs = 0.52;  // from asking for bytes to having them, under load
constexpr double kMapUs = 0.077;     // until the copy engine knows a tensor
constexpr double kRowCycles = 0.68;  // of the copy engine, for a row of a tile
constexpr double kAheadTurns = 1.2;  // that straight loads are ahead of the work
// Of the tiles of a ring beyond the first two, those that the first one shares the way with.
constexpr double kTogether = 0.65;
constexpr double kIssueShare = 4;  // of issue slots that straight-line code fills
constexpr double kSharedBytesPerCycle = 120;
// Of what runs beside the slowest, the part that still shows; of work beside copies into shared memory.
constexpr double kShadow = 0.2, kRingShadow = 0.12;
// What a block waits for that is alone: cycles of an instruction of one warp, and the part of what tensor
// cores, special functions and shared memory do for it.
constexpr double kOwnIssueCycles = 1.2, kOwnUnits = 0.26;

class KernelModel {
 public:
  KernelModel(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
              const Target& target)
      : kernel_(kernel),
        schedule_(schedule),
        target_(target),
        work_(block_work(mugraph, kernel, schedule, target)) {}

  KernelTime run() {
    KernelTime out;
    out.registers = work_.registers;
    const int64_t warps = schedule_.threads() / 32;
    out.shared_bytes =
        static_cast<int64_t>(std::max(schedule_.stages * work_.loop_room, work_.exchange_bytes));
    if (out.shared_bytes > target_.shared_bytes_per_block) {
      out.us = std::numeric_limits<double>::infinity();
      return out;
    }
    // What does not fit the registers is written to memory and read again, time and again.
    const int64_t share = kQuarterRegisters / divide_up(warps * std::max(1, schedule_.resident), 4) / 8 * 8;
    const double spills = std::max(1.0, out.registers / std::min(kMostRegisters, static_cast<double>(share)));
    out.registers = std::ceil(out.registers / spills / 8) * 8;
    out.resident = std::min({static_cast<int64_t>(kQuarterRegisters / out.registers) * 4 / warps, 64 / warps,
                             target_.shared_bytes_per_sm / (out.shared_bytes + 1024), int64_t{32}});
    if (out.resident < std::max(1, schedule_.resident)) {
      out.us = std::numeric_limits<double>::infinity();
      return out;
    }
    double blocks = 1;
    for (int64_t extent : kernel_.grid) blocks *= static_cast<double>(extent);
    const double at_once = std::min(blocks, places(out.resident)), full = std::floor(blocks / at_once),
                 rest = blocks - full * at_once;
    const double us = full * wave(at_once, blocks, out) + (rest > 0 ? wave(rest, blocks, out) : 0);
    out.us = kStartUs - (schedule_.overlaps ? kOverlapUs : 0) + us * std::pow(spills, 4);
    return out;
  }

 private:
  double cluster() const { return static_cast<double>(kernel_.grid[kGridAxes - 1]); }

  // Blocks that the GPU holds. Clusters stay within a part of it, and parts differ in size.
  double places(int64_t resident) const {
    const double all = static_cast<double>(resident) * target_.sms;
    return cluster() > 2 ? std::max(1.0, std::floor(all * kClusterPlaces / cluster())) * cluster() : all;
  }

  // `running` blocks at the same time, of `blocks`, from their first load to the last store; without what
  // launches them.
  double wave(double running, double blocks, KernelTime& out) const {
    const double turns = work_.loop_bytes > 0 ? static_cast<double>(kernel_.turns) : 0;
    const double block_bytes = work_.loop_l2 * turns + work_.once_l2;
    // Of the busiest multiprocessor. Clusters of more than a pair have two there, if these fit, and leave
    // others without.
    double per_sm = std::ceil(running / target_.sms);
    if (cluster() > 2) per_sm = std::max(per_sm, std::min(static_cast<double>(out.resident), 2.0));
    // What a block gets of the bandwidth, in bytes a microsecond: of the multiprocessor's, the L2 cache's
    // and, for what is not there yet, DRAM's.
    const double fresh = work_.unique_bytes / blocks, dram = target_.dram_gbps * 1e3 / running;
    const double rate = std::min({kSmBytesPerUs / per_sm, target_.l2_gbps * 1e3 / running,
                                  dram * std::max(1.0, block_bytes / std::max(1.0, fresh))});
    const double turn_us = std::max(work_.loop_l2 / rate, per_sm * work_.loop.rows * kRowCycles / kClockMhz);
    const double once_us = work_.once_l2 / rate;
    const double loop = computed(work_.loop, per_sm), once = computed(work_.once, per_sm);
    out.memory_us += turns * turn_us + once_us;
    out.compute_us += turns * loop + once;
    const double first = kLatencyUs + (work_.loop.rows > 0 ? kMapUs : 0) +
                         std::max(once_us, turn_us * (1 + kTogether * std::max(0, schedule_.stages - 2))) +
                         once;
    if (turns == 0) return first;
    // A tile is asked for when there is room for it: the others and its own way take that long.
    if (schedule_.stages == 0 && !schedule_.ahead)
      return first + (turns - 1) * (kLatencyUs + turn_us) + turns * loop;
    const double ahead = schedule_.stages > 0 ? schedule_.stages - 1 : kAheadTurns;
    return first +
           (turns - 1) * beside(std::max(turn_us, (kLatencyUs + turn_us) / ahead), loop,
                                schedule_.stages > 0 ? kRingShadow : kShadow) +
           loop;
  }

  // Of two things that go on side by side.
  static double beside(double a, double b, double shadow) { return std::max(a, b) + shadow * std::min(a, b); }

  // Cycles of a warp that has the multiprocessor to itself.
  double alone(const Work& work) const {
    return work.chain + work.issue / (schedule_.workers() / 32) * kOwnIssueCycles +
           kOwnUnits *
               (tensor_cycles(work) + work.special * 8 / 4 + work.shared_bytes / kSharedBytesPerCycle);
  }

  double tensor_cycles(const Work& work) const {
    const double mma_cycles = 2048 * 2 * target_.sms * 4 * kClockMhz * 1e6 / (target_.mma_tflops * 1e12);
    return (work.mma / kMmaShare + work.wgmma / kWgmmaShare) * mma_cycles / 4;
  }

  // Of a multiprocessor, for one block.
  double cycles(const Work& work) const {
    const double units[] = {tensor_cycles(work), work.issue / 4 / kIssueShare, work.special * 8 / 4,
                            work.shared_bytes / kSharedBytesPerCycle};
    double all = 0, most = 0;
    for (double unit : units) {
      all += unit;
      most = std::max(most, unit);
    }
    return most + kShadow * (all - most);
  }

  double computed(const Work& work, double per_sm) const {
    return beside(per_sm * cycles(work), alone(work), kShadow) / kClockMhz + work.trips * kLatencyUs;
  }

  const MuKernel& kernel_;
  const KernelSchedule& schedule_;
  const Target& target_;
  const BlockWork work_;
};

double library_us(const MuGraph& mugraph, const MuKernel& kernel, const Target& target) {
  auto type = [&](int32_t tensor) -> const TensorType& {
    return mugraph.tensors[static_cast<size_t>(tensor)].type;
  };
  double bytes = bytes_of(type(kernel.result)),
         work = static_cast<double>(type(kernel.result).element_count());
  for (int32_t operand : kernel.operands) bytes += bytes_of(type(operand));
  double rate = target.fma_tflops * 1e6 / 8;
  if (op_info(kernel.code).kind == OpKind::contraction) {
    work *= 2 * static_cast<double>(type(kernel.operands[0]).shape.back());
    rate = target.mma_tflops * 1e6 * kLibraryShare;
  }
  return kLibraryUs + std::max(bytes / (target.dram_gbps * 1e3) * 1.3, work / rate);
}

}  // namespace

KernelTime modelled_kernel(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                           const Target& target) {
  return KernelModel(mugraph, kernel, schedule, target).run();
}

Result<double> modelled_time(const MuGraph& mugraph, const Schedule& schedule, const Target& target) {
  auto cut = apply_schedule(mugraph, schedule);
  if (!cut) return cut.status();
  double us = 0;
  for (size_t k = 0; k < cut->kernels.size(); ++k)
    us += cut->kernels[k].custom ? modelled_kernel(*cut, cut->kernels[k], schedule.kernels[k], target).us
                                 : library_us(*cut, cut->kernels[k], target);
  return us;
}

}  // namespace quern
