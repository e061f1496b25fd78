// A block as it is given, with its schedule, and what follows from that alone: where a load's neighbours lie
// in memory, which tiles are staged, what is computed where it is asked for.
#pragma once

#include <map>

#include "core/base/dtype_info.h"
#include "core/base/target.h"
#include "core/codegen/block_program.h"
#include "core/codegen/register_layout.h"
#include "core/codegen/trace.h"
#include "core/schedule/tile_access.h"

namespace quern {

// Which axis of a launch counts along which axis of the grid, and along which one backwards; and along which one blocks have
// more and more to do, or less. So many neighbours along the second of them, a part of its extent, come before the next along
// the first.
struct BlockOrder {
  std::array<int, 3> axes = {0, 1, 2};
  int backwards = -1, uneven = -1;
  int64_t together = 1;
};

struct BlockFacts {
  static constexpr int kAnyBits = 8;
  // Registers of a thread in which a tile is kept through the loop, for what comes after it; larger ones are loaded, or
  // computed, there.
  static constexpr int64_t kMostHeld = 8;

  // `first` of its program, and overlapping what the caller enqueued before: that may write inputs.
  // `approximate`: functions exact to some 2^-21, which is more than 16-bit outputs show.
  // Loads of what lies nowhere become iotas, and each running maximum that sums are relative to gets a
  // factor.
  BlockFacts(const MuKernel& kernel, BlockProgram program, const std::vector<TensorPlace>& places,
             const KernelSchedule& schedule, bool first, const Target& target, bool approximate,
             const BlockOrder& order);

  const MuKernel& kernel;
  BlockProgram program;
  const std::vector<TensorPlace>& places;
  const KernelSchedule& schedule;
  const Target& target;
  const BlockOrder order;
  const bool first, approximate;
  // Where each block writes whether a sum of its products is not finite (looks_behind); or where persistent ones read
  // that of all blocks of a launch in front, and do nothing if all are.
  const TensorPlace* verdicts = nullptr;
  const TensorPlace* verdicts_in_front = nullptr;
  // Of the number of a warp; of those that share a tile, where others have copies; and of those that have rows
  // of their own, where there are no products.
  int warp_bits, sharing_warp_bits, row_warp_bits = 0;
  std::map<BlockValue, BlockValue> factors;  // max accumulator -> the value exp(old - new)

  BlockValue count() const { return static_cast<BlockValue>(program.ops.size()); }
  // Whether there are three warpgroups: as many rows as numbers of warps with `warp_bits` count are not there.
  bool has_three_warpgroups() const { return warp_bits != sharing_warp_bits; }
  int64_t tiles() const { return kernel.grid[0] * kernel.grid[1] * kernel.grid[2]; }
  int64_t cluster_blocks() const { return kernel.grid[static_cast<size_t>(Axis::cluster)]; }
  // Of the numbers of those blocks of a cluster that share what it stores: as many as a power of two has.
  int rank_bits() const;

  // Of a load or store: where its tensor lies.
  const TensorPlace& place(const BlockOp& access) const {
    return places[static_cast<size_t>(access.tensor())];
  }
  const TensorPlace& place(BlockValue access) const { return place(program.op(access)); }
  // As core/schedule/tile_access.h has them.
  int inner_dim(const BlockOp& access) const { return quern::inner_dim(place(access), access.type.shape); }
  int inner_dim(BlockValue access) const { return inner_dim(program.op(access)); }
  // Of these bits, those that are in registers.
  int vector_bits(BlockValue access, const RegisterLayout& layout, int inner) const;
  bool is_shared_by_blocks(const BlockOp& load) const;
  // Whether nobody writes it while the kernel runs.
  bool is_settled(const TensorPlace& place) const;
  // Of all of its tile, without what rounds it up.
  int64_t tile_bytes(BlockValue access) const;
  bool is_staged(BlockValue load) const { return staged_[static_cast<size_t>(load)]; }
  // Loads into registers are issued an iteration before their use.
  bool prefetches() const { return schedule.prefetch && schedule.stages == 0; }

  // Casts among it.
  bool is_elementwise(BlockValue value) const {
    return program.is_compute(value, OpKind::elementwise) || is_cast(program.op(value));
  }
  // Computed where it is asked for, element by element.
  bool is_free(BlockValue value) const;
  // Of such a value: for each of its dimensions that of operand number `operand`, or -1.
  std::vector<int> asked_dims(BlockValue value, size_t operand) const;
  BlockValue root_load(BlockValue value) const { return quern::root_load(program.ops, value); }
  // Whether only a sum over the iterations uses it.
  bool is_summed(BlockValue value) const;
  // A maximum that the loop itself reads.
  bool is_shift(BlockValue accumulator) const;
  // Whether the accumulator takes over what its operand has in parts.
  bool keeps_parts(BlockValue accumulator) const;

  // In vectors of `dtype` along `inner` (-1: the last dimension), of 2^`most_bits` elements at most, then lanes and warps.
  RegisterLayout blocked(BlockValue value, DType dtype, int inner, int most_bits = kAnyBits) const;
  // The same, but every block of the cluster has a part, if need be in smaller vectors, so that no thread
  // idles.
  RegisterLayout shared_out(BlockValue value, DType dtype, int inner, int most_bits = kAnyBits) const;
  // Of vectors in which memory can be accessed: by a load that comes straight from there, or a store. Where that is one
  // element, neighbours belong to neighbouring lanes.
  int access_bits(BlockValue access) const;

 private:
  void sink_behind_loop();

  std::vector<bool> staged_;  // loads
};

}  // namespace quern
