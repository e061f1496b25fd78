#include "core/schedule/model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/base/integers.h"
#include "core/schedule/block_work.h"
#include "core/schedule/looks.h"
#include "core/schedule/model_constants.h"

namespace quern {

namespace {

// Shared memory of a block.
double shared_room(const BlockWork& work, const KernelSchedule& schedule) {
  return std::max(schedule.stages * work.loop_room + work.kept_bytes + work.written_bytes,
                  work.exchange_bytes);
}

// Of the places for blocks, those that clusters of so many blocks find, which lie within parts of the GPU (GPCs) that differ in size.
// kPlaces: blocks of such clusters that an H200 with its 132 SMs holds at one an SM (cudaOccupancyMaxActiveClusters). The half is
// for rounding: as many whole clusters as were counted.
double cluster_share(int64_t blocks) {
  constexpr double kPlaces[] = {132, 132, 132, 117, 120, 110, 102, 105, 120};
  constexpr int64_t kMost = std::size(kPlaces) - 1;
  return (kPlaces[std::min(blocks, kMost)] + 0.5) / kPlaces[1];
}

class KernelModel {
 public:
  KernelModel(const BlockWork& work, const KernelSchedule& schedule, const Target& target)
      : schedule_(schedule), target_(target), work_(work), constants_(model_constants(target)) {}

  KernelTime run() {
    KernelTime out;
    out.registers = work_.registers;
    const int64_t warps = schedule_.threads() / 32;
    out.shared_bytes = static_cast<int64_t>(shared_room(work_, schedule_));
    if (out.shared_bytes > target_.shared_bytes_per_block || !work_.is_possible) {
      out.us = std::numeric_limits<double>::infinity();
      return out;
    }
    // What does not fit the registers is written to memory and read again, time and again.
    const double spills = std::max(1.0, out.registers / static_cast<double>(schedule_.most_registers()));
    out.registers = std::ceil(out.registers / spills / 8) * 8;
    if (schedule_.setmaxnreg)
      out.registers = static_cast<double>(schedule_.launch_registers());  // on the average
    out.blocks_per_sm =
        std::min({static_cast<int64_t>(kSubPartitionRegisters / out.registers) * 4 / warps, 64 / warps,
                  target_.shared_bytes_per_sm / (out.shared_bytes + kSystemSharedBytes), int64_t{32}});
    if (out.blocks_per_sm < std::max(1, schedule_.min_blocks)) {
      out.us = std::numeric_limits<double>::infinity();
      return out;
    }
    const double blocks = work_.blocks;
    // Groups that take tiles in turns are like blocks that share an SM.
    const double at_once = std::min({blocks, places(out.blocks_per_sm * schedule_.groups()),
                                     schedule_.persistent > 0
                                         ? static_cast<double>(schedule_.persistent * schedule_.groups())
                                         : blocks}),
                 full = std::floor(blocks / at_once), rest = blocks - full * at_once;
    // Blocks of an SM drift apart, so that behind the first wave one loads while another computes; a block
    // that stays loads its next tile while it stores one.
    const double first = wave(at_once, blocks, out),
                 again = schedule_.persistent > 0 ? first - out.filling_us : first;
    const double bound = std::min(first, std::max(out.memory_us, out.compute_us));
    const double shown = schedule_.persistent > 0 ? constants_.stay_shadow
                         : at_once > target_.sms  ? constants_.wave_shadow
                                                  : 1;
    const double next = shown < 1 ? bound + shown * std::max(0.0, again - bound) : first;
    const double us =
        std::max(first + (full - 1) * next + (rest > 0 ? std::min(next, wave(rest, blocks, out)) : 0),
                 first + longest_us());
    out.us = constants_.start_us - (schedule_.pdl ? constants_.pdl_us : 0) + us * std::pow(spills, 4);
    out.us += look_us();
    return out;
  }

 private:
  // Until it is known whether what masks leave out is finite.
  double look_us() const {
    if (work_.looked_at_bytes == 0) return 0;
    const double read_us = work_.looked_at_bytes / (target_.dram_gbps * 1e3);
    if (work_.looks_in_front) return read_us;
    return constants_.start_us + (work_.looks_behind ? -constants_.pdl_us : constants_.latency_us + read_us);
  }

  // What an earlier kernel left in the L2 cache comes sooner, and so does what another block has asked for.
  double latency_us() const {
    const double fresh = work_.fresh_bytes > 0 ? work_.fresh_share : 0;
    return constants_.l2_latency_us + fresh * (constants_.latency_us - constants_.l2_latency_us);
  }

  // Of the L2 cache's bandwidth: what several blocks ask for comes to all of them at once.
  double l2_share() const {
    const double askers = work_.distinct_bytes > 0 ? work_.asked_bytes / work_.distinct_bytes : 1;
    const double together = std::min(constants_.l2_share, constants_.l2_alone + constants_.l2_more * (askers - 1));
    return schedule_.intervals ? std::min(constants_.l2_apart, together) : together;
  }

  double cluster() const { return static_cast<double>(work_.cluster); }

  // Blocks that the GPU holds. Clusters stay within a part of it, and parts differ in size.
  double places(int64_t blocks_per_sm) const {
    const double all = static_cast<double>(blocks_per_sm) * target_.sms;
    const double found = std::min(all, all * cluster_share(work_.cluster));
    return std::max(1.0, std::floor(found / cluster())) * cluster();
  }

  // What the block that has the most to do is longer under way than a mean one: at the end it is alone. Blocks that stay have
  // some that have less to do as well.
  double longest_us() const {
    if (work_.longest_trip_count == 0 || schedule_.persistent > 0) return 0;
    BlockWork longest = work_;
    longest.trip_count = work_.longest_trip_count;
    longest.passed_share = work_.longest_passed_share;
    const double running = std::min(work_.blocks, static_cast<double>(target_.sms));
    KernelTime passing;
    return KernelModel(longest, schedule_, target_).wave(running, work_.blocks, passing) -
           wave(running, work_.blocks, passing);
  }

  // `running` blocks at the same time, of `blocks`, from their first load to the last store; without what
  // launches them.
  double wave(double running, double blocks, KernelTime& out) const {
    const double trip_count = work_.loop_bytes > 0 ? static_cast<double>(work_.trip_count) : 0;
    const double block_bytes = work_.loop_l2 * trip_count + work_.once_l2;
    // Of the busiest SM. Those that clusters of more than a pair find first have twice as many, if these fit,
    // and others none.
    double per_sm = std::ceil(running / target_.sms);
    if (cluster() > 2)
      per_sm = std::max(per_sm, std::min(static_cast<double>(out.blocks_per_sm), 2 * per_sm));
    // What a block gets of the bandwidth, in bytes a microsecond: of the SM's, the L2 cache's
    // and, for what is not there yet, DRAM's.
    const double fresh = work_.unique_bytes / blocks, dram = target_.dram_gbps * 1e3 / running;
    const double rate =
        std::min({constants_.sm_bytes_per_us / per_sm, l2_share() * target_.l2_gbps * 1e3 / running,
                  dram * std::max(1.0, block_bytes) / std::max(1.0, fresh)});
    const double iteration_us =
        std::max(work_.loop_l2 / rate, per_sm * tma_cycles(work_.loop) / constants_.clock_mhz);
    const double once_us = work_.once_l2 / rate;
    const double loop = computed(work_.loop, per_sm), passed = computed(work_.passed, per_sm),
                 once = computed(work_.once, per_sm);
    auto mean = [&](double visited, double passed_over) {
      return (1 - work_.passed_share) * visited + work_.passed_share * passed_over;
    };
    out.memory_us += trip_count * iteration_us + once_us;
    const double waits = schedule_.overlap ? trip_count * constants_.overlapped_cycles / per_sm : 0;
    out.compute_us += (per_sm * block_cycles(trip_count) + waits) / constants_.clock_mhz;
    const double asked = latency_us() + (work_.loop.copies > 0 ? constants_.map_us : 0);
    if (trip_count == 0) {
      // What is asked for a little at a time, or by several blocks, is worked on meanwhile.
      const double parts = work_.once.round_trips + per_sm, part = (parts - 1) / parts;
      return asked * (1 + work_.once_waits) + part * beside(once_us, once, constants_.shadow) +
             (1 - part) * (once_us + once);
    }
    const double filled = iteration_us * (1 + constants_.together * std::max(0, schedule_.stages - 2));
    const double loaded =
        work_.once_waits > 0 ? work_.once_waits * once_us + filled : std::max(once_us, filled);
    const double first = asked + once + loaded;
    out.filling_us = asked + filled;
    // A tile is asked for when there is room for it: the others and its own way take that long.
    if (schedule_.stages == 0 && !schedule_.prefetch)
      return first + (trip_count - 1) * (latency_us() + iteration_us) + trip_count * mean(loop, passed);
    const double prefetched = schedule_.stages == 0 ? constants_.prefetch_iterations
                              : work_.holds_last_tiles
                                  ? std::max(constants_.held_ahead, schedule_.stages - 2.0)
                                  : schedule_.stages - 1;
    auto iteration = [&](double computed_us) {
      return beside(std::max(iteration_us, (latency_us() + iteration_us) / prefetched), computed_us,
                    schedule_.stages > 0 ? constants_.ring_shadow : constants_.shadow);
    };
    return first + (trip_count - 1) * mean(iteration(loop), iteration(passed)) + loop;
  }

  // Of what runs beside the slowest.
  double shadow() const {
    if (!schedule_.overlap) return constants_.shadow;
    const double two = schedule_.shared_a ? constants_.shared_overlap_shadow : constants_.overlap_shadow;
    return are_three_warpgroups(schedule_.warps) ? constants_.third_shadow * two : two;
  }
  // Of two things that go on side by side.
  static double beside(double a, double b, double shadow) { return std::max(a, b) + shadow * std::min(a, b); }

  double tma_cycles(const Work& work) const {
    return work.copies * constants_.copy_cycles + work.lines * constants_.line_cycles;
  }

  // Of an SM, for one block's iteration or the rest, with what warps of their own do meanwhile.
  double all_cycles(const Work& work) const {
    const double own = cycles(work);
    if (!schedule_.transform || &work == &work_.once) return own;
    return beside(own, cycles(work_.transform), constants_.transform_shadow);
  }

  // Cycles of a warp that has the SM to itself.
  double alone(const Work& work) const {
    const double tensor = constants_.own_units * tensor_cycles(work),
                 rest = (work.issue + work.slots) / (schedule_.workers() / 32) * constants_.own_issue_cycles +
                        fma_cycles(work) / (schedule_.workers() / 32) +
                        constants_.own_units *
                            (work.special * 8 / 4 + work.shared_bytes / constants_.shared_bytes_per_cycle);
    return work.chain + (schedule_.overlap ? std::max(tensor, rest) : tensor + rest);
  }

  double tensor_cycles(const Work& work) const {
    const double mma_cycles =
        2048 * 2 * target_.sms * 4 * constants_.clock_mhz * 1e6 / (target_.mma_tflops * 1e12);
    return std::max((work.mma / constants_.mma_share + work.wgmma / constants_.wgmma_share) * mma_cycles / 4,
                    work.operand_bytes / constants_.operand_bytes_per_cycle);
  }

  // Of a sub-partition that has 32 lanes, or half of them.
  double fma_cycles(const Work& work) const {
    return work.fma * 32 * 2 * target_.sms * 4 * constants_.clock_mhz * 1e6 / (target_.fma_tflops * 1e12);
  }

  // Of an SM, for one block.
  double cycles(const Work& work) const {
    const double units[] = {tensor_cycles(work), work.issue / 4 / constants_.issue_share,
                            (work.slots / constants_.slot_share + fma_cycles(work)) / 4, work.special * 8 / 4,
                            work.shared_bytes / constants_.shared_bytes_per_cycle};
    double all = 0, most = 0;
    for (double unit : units) {
      all += unit;
      most = std::max(most, unit);
    }
    return most + shadow() * (all - most);
  }

  // Of all that a block does for a tile. Groups that take tiles in turns do what stands behind the loop beside the other's.
  double block_cycles(double trip_count) const {
    if (schedule_.groups() > 1) {
      Work all = work_.once;
      for (double Work::*count : kComputes) all.*count += trip_count * work_.loop.*count;
      return cycles(all);
    }
    return trip_count * ((1 - work_.passed_share) * all_cycles(work_.loop) +
                         work_.passed_share * all_cycles(work_.passed)) +
           cycles(work_.once);
  }

  double computed(const Work& work, double per_sm) const {
    // Products that stay outstanding follow each other, but for what hands a stage over; without a producer, but for a barrier.
    const double between = &work != &work_.loop || work.wgmma == 0 ? 0
                           : !schedule_.producer                   ? per_sm * constants_.waits_cycles
                           : work_.holds_last_tiles                ? per_sm * constants_.between_cycles
                           : schedule_.overlap                     ? constants_.overlapped_cycles / per_sm
                                                                   : 0;
    // Where an SM has fewer than four warps, sub-partitions do nothing: that takes as long as blocks that fill it.
    const double blocks = std::max(per_sm, 4.0 * 32 / schedule_.workers());
    return (beside(blocks * all_cycles(work), alone(work), shadow()) + between) / constants_.clock_mhz +
           work.round_trips * latency_us();
  }

  const KernelSchedule& schedule_;
  const Target& target_;
  const BlockWork& work_;
  const ModelConstants& constants_;
};

}  // namespace

KernelTime modelled_block(const BlockWork& work, const KernelSchedule& schedule, const Target& target) {
  return KernelModel(work, schedule, target).run();
}

namespace {

// What blocks of the parts do in the mean.
BlockWork mean_block(const std::vector<BlockWork>& parts) {
  BlockWork out;
  out.blocks = out.fresh_share = 0;
  double iterations = 0;
  for (const BlockWork& part : parts) {
    out.blocks += part.blocks;
    iterations += part.blocks * static_cast<double>(part.trip_count);
    out.cluster = std::max(out.cluster, part.cluster);
    for (double BlockWork::* most :
         {&BlockWork::registers, &BlockWork::loop_room, &BlockWork::exchange_bytes, &BlockWork::kept_bytes,
          &BlockWork::written_bytes, &BlockWork::once_waits, &BlockWork::fresh_share})
      out.*most = std::max(out.*most, part.*most);
    for (double BlockWork::*sum : {&BlockWork::unique_bytes, &BlockWork::fresh_bytes, &BlockWork::asked_bytes,
                                   &BlockWork::distinct_bytes})
      out.*sum += part.*sum;
  }
  out.trip_count = std::max<int64_t>(1, std::llround(iterations / out.blocks));
  for (const BlockWork& part : parts) {
    const double share = part.blocks / out.blocks;
    const double turns = share * static_cast<double>(part.trip_count) / static_cast<double>(out.trip_count);
    auto add = [&](double Work::*count) {
      out.once.*count += share * part.once.*count;
      out.loop.*count += turns * part.mean(count);
    };
    std::for_each(std::begin(kComputes), std::end(kComputes), add);
    std::for_each(std::begin(kLoads), std::end(kLoads), add);
    for (double BlockWork::*bytes : {&BlockWork::loop_bytes, &BlockWork::loop_l2})
      out.*bytes += turns * part.*bytes;
    for (double BlockWork::*bytes : {&BlockWork::once_bytes, &BlockWork::once_l2})
      out.*bytes += share * part.*bytes;
  }
  return out;
}

}  // namespace

// As long as their work takes when all blocks do as much of it, but no less than any part takes alone.
KernelTime modelled_joined(const std::vector<BlockWork>& parts, const std::vector<KernelSchedule>& schedules,
                           const Target& target) {
  double registers = 0, shared_bytes = 0;
  int min_blocks = schedules[0].min_blocks;
  for (size_t p = 0; p < parts.size(); ++p) {
    registers = std::max(registers, parts[p].registers);
    shared_bytes = std::max(shared_bytes, shared_room(parts[p], schedules[p]));
    min_blocks = std::min(min_blocks, schedules[p].min_blocks);
  }
  auto modelled = [&](BlockWork work, KernelSchedule schedule) {
    work.registers = registers;
    work.exchange_bytes = shared_bytes;
    schedule.min_blocks = min_blocks;
    return modelled_block(work, schedule, target);
  };
  size_t largest = 0;
  double longest = 0;
  for (size_t p = 0; p < parts.size(); ++p)
    if (const double us = modelled(parts[p], schedules[p]).us; us > longest) {
      longest = us;
      largest = p;
    }
  KernelTime out = modelled(mean_block(parts), schedules[largest]);
  out.us = std::max(out.us, longest);
  return out;
}

KernelTime modelled_kernel(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                           const Target& target) {
  return modelled_block(block_work(mugraph, kernel, schedule, target), schedule, target);
}

KernelTime modelled_launch(const MuGraph& mugraph, const Schedule& schedule, size_t k, const Target& target) {
  const LaunchedKernels launch = launch_of(schedule, k);
  std::vector<BlockWork> parts;
  for (k = launch.first; k < launch.end; ++k) {
    parts.push_back(block_work(mugraph, mugraph.kernels[k], schedule.kernels[k], target));
    parts.back().looks_in_front = launch_that_looks(mugraph, schedule, k).has_value();
  }
  const auto first = schedule.kernels.begin() + static_cast<std::ptrdiff_t>(launch.first);
  return parts.size() == 1
             ? modelled_block(parts[0], *first, target)
             : modelled_joined(parts, {first, first + static_cast<std::ptrdiff_t>(parts.size())}, target);
}

const KernelTime& LaunchTimes::of(const MuGraph& mugraph, const Schedule& schedule, size_t k) {
  const LaunchedKernels launch = launch_of(schedule, k);
  Schedule own;
  std::string key = std::to_string(launch.first) + "\n";
  for (size_t part = launch.first; part < launch.end; ++part) {
    own.kernels.push_back(schedule.kernels[part]);
    if (launch_that_looks(mugraph, schedule, part)) key += "looks\n";
  }
  const auto [at, fresh] = known_.try_emplace(key + print_schedule(own));
  if (fresh) at->second = modelled_launch(mugraph, schedule, k, target_);
  return at->second;
}

double LaunchTimes::sum(const MuGraph& mugraph, const Schedule& schedule) {
  double us = 0;
  for (size_t k = 0; k < mugraph.kernels.size(); k = launch_of(schedule, k).end)
    if (mugraph.kernels[k].custom) us += of(mugraph, schedule, k).us;
  return us;
}

Result<double> LaunchTimes::of_all(const MuGraph& mugraph, const Schedule& schedule) {
  const auto cut = apply_schedule(mugraph, schedule);
  if (!cut) return cut.status();
  return sum(*cut, schedule);
}

}  // namespace quern
