// What a block of a scheduled kernel does: instructions, bytes and registers, counted from its operators.
#pragma once

#include <iterator>

#include "core/base/integers.h"
#include "core/schedule/schedule.h"

namespace quern {

inline double bytes_of(const TensorType& type) {
  return static_cast<double>(type.element_count()) * static_cast<double>(dtype_size(type.dtype));
}

// Instructions of all warps of a block, and what they move through shared memory.
struct Work {
  // Products of 16 x 8 x 16, by warps and by warpgroups; of tf32, which takes twice as long, 16 x 8 x 8.
  double mma = 0, wgmma = 0;
  double issue = 0, special = 0, shared_bytes = 0;  // the latter by threads
  double operand_bytes = 0;                         // of shared memory, that wgmma reads, and of what TMA writes a part
  double slots = 0;  // instructions that were counted one by one: each takes an issue slot
  double fma = 0;  // cycles of a sub-partition in which it issues products of register tiles, and their loads
  double chain = 0;        // cycles that one warp waits for its own results, one after the other
  double round_trips = 0;  // to memory, each dependent on the one before: what it loads a little at a time
  double copies = 0, lines = 0;  // that TMA makes, and the lines of the L2 cache that their rows lie in
};
// What is computed of an iteration's tiles, and what brings them.
inline constexpr double Work::*kComputes[] = {&Work::mma,     &Work::wgmma,        &Work::issue,
                                              &Work::special, &Work::shared_bytes, &Work::operand_bytes,
                                              &Work::slots,   &Work::fma,          &Work::chain};
inline constexpr double Work::*kLoads[] = {&Work::round_trips, &Work::copies, &Work::lines};
static_assert(sizeof(Work) == sizeof(double) * (std::size(kComputes) + std::size(kLoads)),
              "each count is in a list");

// How a tile comes from global memory: by TMA, by copies of threads into a stage, or into registers, as
// tensor cores take it or as threads share it.
struct TileLoad {
  BlockValue value;
  bool staged = false, tma = false, fragments = false;
  double bytes = 0, width = 0;  // of the tile; of an access of a thread
};

struct BlockWork {
  double blocks = 1;                    // of the grid, clusters and all
  int64_t cluster = 1, trip_count = 1;  // blocks of a cluster; iterations of the loop
  Work loop, once;                      // an iteration, and the rest
  Work transform;               // what warps of their own do of an iteration (KernelSchedule::transform)
  bool makes_operands = false;  // threads leave what wgmma reads of an iteration in shared memory
  double passed_share = 0;              // of the iterations: those that all threads pass over
  int64_t longest_trip_count = 0;  // of the block that has the most to do, where they differ; otherwise 0
  double longest_passed_share = 0;
  Work passed;                            // what they do of them
  double loop_bytes = 0, once_bytes = 0;  // loaded an iteration, and once
  double loop_l2 = 0, once_l2 = 0;        // the same in whole sectors
  double loop_room = 0;                   // of an iteration's tiles in shared memory, extents rounded up
  bool holds_last_tiles = false;  // products of the iteration before are under way, and read its tiles
  double exchange_bytes = 0;      // shared memory for exchanges
  double kept_bytes = 0;          // and for operands that stay there (shared_a)
  double written_bytes = 0;       // and for what threads hand to each other beside the ring
  double unique_bytes = 0;        // of all blocks, from and to DRAM
  double fresh_bytes = 0;         // of these, the ones that are read
  double fresh_share = 1;         // of what blocks ask for, of the tensor that the fewest of them share
  double asked_bytes = 0, distinct_bytes = 0;  // of what all blocks ask for: all of it, and each byte once
  // For memory, one after the other: before operands of products are loaded once, and before a loop of products has
  // what they need that is reduced in front of it.
  double once_waits = 0;
  // Of what blocks in front check (looks.h): bytes that they read, and whether they ride in a launch that is there anyway; else
  // whether a launch behind can do without them.
  double looked_at_bytes = 0;
  bool looks_in_front = false, looks_behind = false;
  double registers = 0;  // of a thread, were there as many as it wants
  std::vector<TileLoad> loads;
  bool is_possible = true;  // ptxas and the lowering have registers for its products

  // Of the mean iteration.
  double mean(double Work::*count) const {
    return (1 - passed_share) * (loop.*count) + passed_share * (passed.*count);
  }
};

// Whether tensor cores take a product of the kernel only in tf32, which operands of f32 are rounded to or made
// of.
bool gains_by_tf32(const MuKernel& kernel);

// `kernel` is cut as the schedule says (apply_schedule).
BlockWork block_work(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                     const Target& target);

}  // namespace quern
