// How a block's work is counted: operator by operator, loads and arithmetic in block_work.cc, products in product_work.cc.
#pragma once

#include <set>

#include "core/mugraph/tile_masks.h"
#include "core/schedule/block_work.h"
#include "core/schedule/model_constants.h"
#include "core/schedule/register_estimate.h"
#include "core/schedule/scheduled_block.h"

namespace quern {

class BlockCounter : private ScheduledBlock {
 public:
  BlockCounter(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
               const Target& target)
      : ScheduledBlock(mugraph, kernel, schedule, target),
        constants_(model_constants(target)),
        unmasked_(unmasked_share(mugraph, kernel)),
        straight_(kernel.ops.size()),
        by_rows_(kernel.ops.size()) {
    if (schedule.intervals) masking_ = masking_values(mugraph, kernel);
    find_reductions();
    if (schedule.transform) find_transforms();
  }

  BlockWork run();

 private:
  static constexpr double kLookedAtWord = 3;  // instructions
  static constexpr double kMmaCycles = 6.5;   // of a sub-partition, for one of 16 x 8 x 16
  // What is reduced is loaded, then loaded again as operands lie in registers; behind both come the other operands.
  static constexpr double kReducedFirst = 2;

  Work& work(Stage stage) {
    return stage != Stage::loop ? out_.once : transforming_ ? out_.transform : out_.loop;
  }
  // With `transform`: what warps of their own make, which takes no registers of those that compute.
  void find_transforms();
  void count_transform(size_t i);
  // Whether there are any, and those warps have registers for a tile.
  bool fits_transform() const;
  // What an iteration brings it brings whether or not all of it is masked; with intervals there are fewer of
  // them. Without, iterations that overlap are not passed over.
  void pass_over();
  // Of the iterations, those in which it is computed: with intervals masks are made where a tile is masked in part.
  double computed_share(size_t i) const;

  void count(size_t i);
  void elementwise(size_t i);
  void load(size_t i);
  void reduction(size_t i);
  void accumulate(size_t i);
  // Where another dimension becomes the innermost, threads exchange elements, so that they load and store neighbours.
  void transpose(size_t i);
  // Elements that other threads store than have them, through shared memory.
  void exchange(size_t i);
  // No time is counted where a product is stored as it is: with it, wgmma would be ranked behind mma.sync, which is
  // slower (gatedmlp_b8: 18.0 and 21.1 us).
  void make_room_to_exchange(size_t i);
  // Whoever has neighbours along the rows of a product has them along the columns of what it is turned into.
  void find_neighbours(size_t i);
  // What each value is made of: reductions, and such that are made in front of the loop.
  void find_reductions();
  // Nothing is computed between it and the product, whose operand may come by TMA then.
  bool is_kept_as_it_is(BlockValue load) const;

  void product(size_t i);
  // Without tensor cores: both operands out of shared memory, where what the ring does not bring is left
  // first.
  void product_by_fma(size_t i);
  // Tensor cores read staged operands by themselves, the N operand once for every 64 rows of the M operand.
  void wgmma_product(size_t i, double batch);
  // Registers of a thread for the result of a product, and the exchange of what warps along k have of it.
  void keep_product(size_t i, double thread_sums, double k_parts);
  // The next iteration begins before it has landed.
  bool stays_outstanding(size_t i) const;
  // A tile that meets a product is loaded as that lies in registers: two elements at a time.
  void join_product(BlockValue value);
  // Every warp loads the fragments that it needs by itself, those that others load too out of the L1 cache.
  void read_direct(BlockValue load, double words);

  const ModelConstants& constants_;
  const UnmaskedShare unmasked_;
  std::set<BlockValue> masking_;  // what most iterations do without
  std::vector<char> straight_;    // loads whose fragments are counted
  // Of what is computed of a product by warpgroups: whether registers of a thread have neighbours along its rows, not
  // along its columns.
  std::vector<std::optional<bool>> by_rows_;
  std::vector<bool> reduced_, reduced_in_front_;
  std::set<BlockValue> transforms_;
  bool transforming_ = false;  // one of them is counted
  RegisterNeeds needs_;
  BlockWork out_;
};

}  // namespace quern
