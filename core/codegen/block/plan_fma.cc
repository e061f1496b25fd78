// Products without tensor cores: every thread has a tile of sums in registers, and reads vectors of both
// operands out of shared memory.
#include <algorithm>

#include "core/codegen/block/product_plans.h"

namespace quern {

namespace {

constexpr int kVectorBits = 2;  // elements of four bytes in 16

int64_t extent_of(const Ints& shape, int dim) { return dim < 0 ? 1 : shape[static_cast<size_t>(dim)]; }

// A side of a product: its operand's rank and dimensions, of rows or columns and the one that is summed over,
// and the result's of rows or columns.
struct FmaSide {
  int side, rank, own, summed, of_result;
  FmaOperand form;
};

// Rows or columns of the tile of sums, from the lowest bit on: vectors, lanes, other registers, warps.
void place_side(const FmaTile& tile, const FmaSide& side, int warp_bits, MatmulPlan& plan) {
  const bool left = side.side == 0;
  RegisterLayout& layout = left ? plan.a : plan.b;
  const int vector = left ? tile.m_vector : tile.n_vector, lanes = left ? tile.m_lanes : tile.n_lanes,
            registers = left ? tile.m_registers : tile.n_registers,
            warps = left ? tile.m_warps : tile.n_warps;
  std::vector<CoordBit> sums;
  append_bits(sums, side.own, 0, vector);
  append_bits(sums, side.own, vector + lanes, registers + lanes);
  for (const CoordBit& bit : sums) plan.d.registers.push_back({side.of_result, bit.bit});
  if (side.form.by_inner) append_bits(layout.registers, side.summed, 0, tile.group);
  layout.registers.insert(layout.registers.end(), sums.begin(), sums.end());
  append_bits(layout.registers, side.summed, side.form.by_inner ? tile.group : 0, tile.group + tile.groups);
  const int first_lane = left ? tile.n_lanes : 0, first_warp = left ? 0 : tile.m_warps;
  for (int i = 0; i < lanes; ++i) {
    const size_t lane = static_cast<size_t>(first_lane + i);
    layout.lanes[lane] = {side.own, vector + i};
    plan.d.lanes[lane] = {side.of_result, vector + i};
  }
  layout.warps.resize(static_cast<size_t>(warp_bits));
  for (int i = 0; i < warps; ++i) {
    const size_t warp = static_cast<size_t>(first_warp + i);
    layout.warps[warp] = {side.own, registers + lanes + i};
    plan.d.warps[warp] = {side.of_result, registers + lanes + i};
  }
  for (int i = 0; i < tile.k_warps; ++i)
    layout.warps[static_cast<size_t>(tile.m_warps + tile.n_warps + i)] = {side.summed,
                                                                          tile.group + tile.groups + i};
}

}  // namespace

// Which dimension of an operand has its neighbours side by side in shared memory. What threads copy into the
// ring, element by element if need be, are rows or columns: registers of four of these are in banks in turn,
// as the sums are, while of four steps those of one step are in the same bank, and wait for each other.
int ProductPlans::shared_inner(BlockValue operand, int side, bool staged) const {
  const int rank = program_.op(operand).type.rank(), free = free_dim(side, rank);
  if (staged && is_turned(operand, side)) return free;
  const int inner = staged ? facts_.inner_dim(operand) : rank - 1;
  return inner < 0 ? rank - 1 : inner;
}

bool ProductPlans::is_turned(BlockValue operand, int side) const {
  const int rank = program_.op(operand).type.rank();
  return !(schedule_.tma && target_.tma) && rank > 1 &&
         program_.users[static_cast<size_t>(operand)].size() == 1 &&
         facts_.inner_dim(operand) == summed_dim(side, rank);
}

MatmulPlan ProductPlans::plan_fma(BlockValue value) const {
  MatmulPlan plan;
  const BlockOp& op = program_.op(value);
  plan.dtype = register_type(op.type.dtype);
  const int rank = op.type.rank();
  const bool column = program_.shape(op.operands[1]).size() == 1;  // the right operand is a vector
  std::array<FmaSide, 2> sides;
  std::array<int64_t, 2> extents;
  for (int side : {0, 1}) {
    const size_t s = static_cast<size_t>(side);
    const BlockValue operand = op.operands[s];
    const BlockOp& from = program_.op(operand);
    const int own_rank = from.type.rank(), own = free_dim(side, own_rank);
    const int of_result = own_rank == 1 ? -1 : rank - (side == 0 && !column ? 2 : 1);
    plan.shared[s] = from.is_load() && facts_.is_staged(operand) && facts_.place(from).dtype == plan.dtype;
    const int inner = shared_inner(operand, side, plan.shared[s]);
    FmaSide& its = sides[s] = {side, own_rank, own, summed_dim(side, own_rank), of_result, {}};
    its.form.by_inner = inner == its.summed;
    if (its.form.by_inner || inner == own) its.form.vector = kVectorBits;
    extents[s] = extent_of(from.type.shape, own);
  }
  const FmaTile tile = fma_tile(extents[0], extents[1], program_.shape(op.operands[0]).back(), sides[0].form,
                                sides[1].form, schedule_.warps);
  plan.fma = tile;
  plan.d.warps.resize(static_cast<size_t>(warp_bits_));
  for (size_t side : {size_t{1}, size_t{0}}) place_side(tile, sides[side], warp_bits_, plan);
  plan.partial_warps = ((1u << tile.k_warps) - 1) << (tile.m_warps + tile.n_warps);
  plan_fma_batch(value, plan);
  return plan;
}

// The matrices of a batch; an operand may be the same for some.
void ProductPlans::plan_fma_batch(BlockValue value, MatmulPlan& plan) const {
  const BlockOp& op = program_.op(value);
  const int batch_dims = fma_batch_dims(program_, value);
  for (int dim = batch_dims - 1; dim >= 0; --dim)
    for (int bit = 0; bit < bits_for(op.type.shape[static_cast<size_t>(dim)]); ++bit) {
      plan.d.registers.push_back({dim, bit});
      plan.batch *= 2;
      for (int side : {0, 1}) {
        const Ints& shape = program_.shape(op.operands[static_cast<size_t>(side)]);
        const int at = fma_batch_dim(dim, static_cast<int>(shape.size()), batch_dims);
        if (at >= 0 && shape[static_cast<size_t>(at)] != 1)
          (side == 0 ? plan.a : plan.b).registers.push_back({at, bit});
      }
    }
}

// How the ring has what only this product reads.
void ProductPlans::note_fma_operands(BlockValue value, const MatmulPlan& plan) {
  for (int side : {0, 1}) {
    const BlockValue operand = program_.op(value).operands[static_cast<size_t>(side)];
    if (!plan.shared[static_cast<size_t>(side)] || !program_.only_for(operand, value)) continue;
    demands_.emplace(operand, side == 0 ? plan.a : plan.b);
    if (is_turned(operand, side)) turned_[operand] = free_dim(side, program_.op(operand).type.rank());
  }
}

}  // namespace quern
