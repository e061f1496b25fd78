// A block graph and its schedule become a kernel's draft (core/kernel/passes/draft.h).
//
// Operators that cannot be recomputed for free (matrix products, reductions, accumulators) are written one
// after the other and leave their result in registers, in the layout that suits them; loads and elementwise
// chains are written where they are asked for, in the layout that is asked for. What is there in another
// layout than is wanted is converted. Partial results of lanes and warps are put together late: where the
// first operator needs a whole one.
//
//   facts            what is given, and what follows from it
//   product_plans    how matrix products are taken (plan_mma, plan_fma, plan_wgmma)
//   layout_question  which layouts values have (layout_costs)
//   bounds           where tiles begin and end
//   values           what is asked for: out of registers, or computed
//   conversions      between layouts
//   global_memory    loads, stores
//   staged_tiles     the ring (tma), shared_tiles how tiles lie in it
//   operands, products (fma), pipelined    matrix products
//   reductions, cluster_reductions, moves  the other operators
//   position_masks   iterations that are masked wholly
#pragma once

#include "core/base/plan.h"
#include "core/codegen/block/computed_products.h"
#include "core/codegen/block/facts.h"
#include "core/codegen/wgmma_text.h"
#include "core/kernel/launch_facts.h"
#include "core/kernel/passes/draft.h"
#include "core/schedule/choices.h"

namespace quern {

// What the choices of a block come to.
struct BlockCosts : ir::DraftCosts {
  // Estimated issue cycles of a warp, over all iterations: of all that layouts decide, of the conversions
  // among it, and of the conversions that were written.
  int64_t layout_cycles = 0, planned_conversion_cycles = 0, conversion_cycles = 0;
};

struct BlockKernel {
  ir::Draft draft;   // of a kernel without a name
  BlockCosts costs;  // but for those that passes decide
  Dim3 grid, cluster;
  std::vector<LaunchArg> args;  // tensor maps are numbered from 0
  std::vector<TensorMap> tensor_maps;
  // Arguments whose memory a kernel in front fills: with finite_graph() (finite_parts.h) of the tensor.
  struct Watched {
    size_t arg;
    int32_t tensor;
  };
  std::vector<Watched> watched;
  std::optional<size_t> verdicts;  // the argument that is BlockFacts::verdicts, or those in front
  ir::LaunchFacts facts;
  std::set<WgmmaShape> shapes;  // that it uses
  ComputedProducts products;
  // Whether a product of f32 operands is computed in tf32; in three of them.
  bool tf32 = false, tf32x3 = false;
};

// UNSUPPORTED says which operator or size stands in the way; INVALID_ARGUMENT that the schedule's choices are
// not for this block.
Result<BlockKernel> lower_to_draft(const BlockFacts& facts, Chooser& chooser);

}  // namespace quern
