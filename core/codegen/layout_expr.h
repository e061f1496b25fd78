// Indices and coordinates of what register layouts say, as expressions over the number of a register, lane,
// warp and block.
#pragma once

#include "core/codegen/register_layout.h"
#include "core/kernel/expr.h"

namespace quern {

// An expression that moves bits: bit from of `variable` becomes bit to.
struct BitMove {
  int from, to;
};
ir::Expr move_bits(const ir::Expr& variable, std::vector<BitMove> moves);
// Where in a layout with other numbers of dimensions (renumbered()) the register with number `variable` of
// the whole one lies.
ir::Expr renumbered_index(const ir::Expr& variable, const RegisterLayout& layout,
                          const std::vector<int>& dims);
// Where in `have` the register with number `variable` of `want` lies.
ir::Expr register_index(const ir::Expr& variable, const RegisterLayout& have, const RegisterLayout& want);
// The number of the thread in its warp, of the warp, and of the block in its cluster.
const ir::Symbol& lane();
const ir::Symbol& warp();
const ir::Symbol& rank();
// The part of coordinate `dim` that the thread decides (over `lane`, `warp` and `rank`), and that register
// `variable` does.
ir::Expr thread_part(const RegisterLayout& layout, int dim);
ir::Expr register_part(const ir::Expr& variable, const RegisterLayout& layout, int dim);
// Of threads that hold the same tile, whether this is the first.
ir::Expr leaders(const RegisterLayout& layout);

}  // namespace quern
