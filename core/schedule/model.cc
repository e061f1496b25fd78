#include "core/schedule/model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/schedule/block_work.h"

namespace quern {

namespace {

constexpr double kClockMhz = 1755;   // H200; the others are close enough
constexpr double kStartUs = 2.3;     // of a kernel in a CUDA graph: launch, first instruction, drain
constexpr double kOverlapUs = 0.3;   // of that, what a kernel saves that begins before the one in front ends
constexpr double kLatencyUs = 0.28;  // from asking DRAM for bytes to having them, under load
constexpr double kSmBytesPerUs = 69000;  // that one multiprocessor gets from L2
// Of the bytes that a block asks for in a turn, those that are on their way at a time: with loads a turn
// ahead, with loads that are waited for, and with what is loaded once.
constexpr double kStraightBytes = 360;  // that a thread asks for before it uses the first
constexpr double kAheadShare = 0.6, kStraightShare = 0.07, kOnceShare = 0.35;
constexpr double kMmaShare = 0.23;  // of the tensor cores' rate that mma.sync reaches
constexpr double kIssueShare = 2;   // of issue slots that straight-line code fills
constexpr double kShadow = 0.27;    // of what runs beside the slowest, the part that still shows
constexpr double kSharedBytesPerCycle = 100;
constexpr double kWgmmaShare = 0.53;      // of the tensor cores' rate that wgmma reaches
constexpr double kOwnIssueCycles = 0.78;  // of an instruction of one warp
constexpr double kMostRegisters = 255;

// Of an SM, for one block.
double cycles(const Work& work, double mma_cycles) {
  const double units[] = {(work.mma + work.wgmma * kMmaShare / kWgmmaShare) * mma_cycles / 4,
                          work.issue / 4 / kIssueShare, work.special * 8 / 4,
                          work.shared_bytes / kSharedBytesPerCycle};
  double all = 0, most = 0;
  for (double unit : units) {
    all += unit;
    most = std::max(most, unit);
  }
  return most + kShadow * (all - most);
}

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
    const double threads = schedule_.threads();
    out.shared_bytes =
        static_cast<int64_t>(std::max(schedule_.stages * work_.loop_room, work_.exchange_bytes));
    if (out.shared_bytes > target_.shared_bytes_per_block) {
      out.us = std::numeric_limits<double>::infinity();
      return out;
    }
    // What does not fit the registers is written to memory and read again, time and again.
    const double most = std::min(kMostRegisters, 65536 / threads / std::max(1, schedule_.resident)),
                 spills = std::max(1.0, out.registers / most);
    out.registers = std::ceil(out.registers / spills / 8) * 8;
    out.resident = std::min({static_cast<int64_t>(65536 / (out.registers * threads)),
                             static_cast<int64_t>(2048 / threads),
                             target_.shared_bytes_per_sm / (out.shared_bytes + 1024), int64_t{32}});
    if (out.resident < std::max(1, schedule_.resident)) {
      out.us = std::numeric_limits<double>::infinity();
      return out;
    }
    int64_t blocks = 1;
    for (int64_t extent : kernel_.grid) blocks *= extent;
    out.memory_us = memory(blocks, out.resident);
    out.compute_us = compute(blocks, out.resident);
    const double longer = std::max(out.memory_us, out.compute_us);
    out.us = kStartUs - (schedule_.overlaps ? kOverlapUs : 0) +
             (longer + kShadow * (out.memory_us + out.compute_us - longer)) * std::pow(spills, 4);
    return out;
  }

 private:
  double memory(int64_t blocks, int64_t resident) const {
    const double dram = target_.dram_gbps * 1e3, l2 = target_.l2_gbps * 1e3;  // bytes a microsecond
    const int64_t at_once = std::min(blocks, resident * target_.sms);
    const double waves = static_cast<double>(divide_up(blocks, at_once));
    const double turns = static_cast<double>(kernel_.turns);
    const double block_bytes = work_.loop_l2 * turns + work_.once_l2;
    const double in_flight =
        schedule_.stages == 0
            ? (schedule_.ahead
                   ? work_.loop_bytes * kAheadShare
                   : std::min(work_.loop_bytes, kStraightBytes * schedule_.workers()) * kStraightShare) +
                  work_.once_bytes * kOnceShare
            : work_.loop_bytes * std::min<double>(schedule_.stages - 1, turns) +
                  work_.once_bytes * kOnceShare;
    const double busy = std::min<double>(1, static_cast<double>(at_once) / target_.sms);
    const double arrival = std::min(l2 * busy, static_cast<double>(at_once) * in_flight / kLatencyUs);
    const double from_l2 = waves * static_cast<double>(at_once) * block_bytes / arrival;
    const double from_dram = work_.unique_bytes / std::min(dram, arrival);
    // The busiest multiprocessor draws its own share.
    const double drawn = static_cast<double>(divide_up(blocks, target_.sms)) * block_bytes / kSmBytesPerUs;
    return std::max({from_l2, from_dram, drawn}) + kLatencyUs * 0.5;
  }

  // Cycles of a warp that has the multiprocessor to itself.
  double alone(const Work& work) const {
    return work.chain + work.issue / (schedule_.workers() / 32) * kOwnIssueCycles;
  }

  double compute(int64_t blocks, int64_t resident) const {
    const double mma_cycles =
        2048 * 2 * target_.sms * 4 * kClockMhz * 1e6 / (target_.mma_tflops * 1e12 * kMmaShare);
    const int64_t per_sm = std::min(resident, divide_up(blocks, target_.sms));
    const double rounds = static_cast<double>(divide_up(blocks, per_sm * target_.sms));
    const double turns = static_cast<double>(kernel_.turns), n = static_cast<double>(per_sm);
    const double latency = kLatencyUs * kClockMhz;
    double wait = alone(work_.loop);
    if (schedule_.stages > 0)
      wait = std::max(wait + (schedule_.producer ? 0 : kBarrierCycles),
                      latency / std::max(1, schedule_.stages - 1));
    else if (work_.loop_bytes > 0)
      wait = schedule_.ahead ? std::max(wait, latency) : wait + latency;
    const double turn = std::max(n * cycles(work_.loop, mma_cycles), wait) +
                        kShadow * std::min(n * cycles(work_.loop, mma_cycles), wait);
    const double once = std::max(n * cycles(work_.once, mma_cycles), alone(work_.once));
    return rounds * (turn * (work_.loop_bytes > 0 ? turns : 0) + once) / kClockMhz;
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
    rate = target.mma_tflops * 1e6 * kMmaShare / 2;
  }
  return kStartUs + kLatencyUs + std::max(bytes / (target.dram_gbps * 1e3) * 1.3, work / rate);
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
