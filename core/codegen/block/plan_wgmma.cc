// Which products qualify for warpgroups (wgmma), and which of their operands tensor cores read from shared
// memory by themselves. One operand's side of the result is M, the 64 rows of wgmma; the other is its up to
// 256 columns. Either operand of the product can be M: a few rows times many columns is computed as many rows
// of the transposed result. The N operand must lie in a staged tile; M may, or comes from registers.
#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/base/integers.h"
#include "core/codegen/block/product_plans.h"
#include "core/codegen/wgmma_text.h"
#include "core/schedule/transforms.h"

namespace quern {

namespace {

// Of one instruction: 64 rows, of 8 each; k.
constexpr int kWgmmaRowBits = 6, kRowGroupBits = 3, kInnerBits = 4;
constexpr int kPanelBits = 6;  // elements of a row of 128 bytes

// Whether three warpgroups have a third of the extent each: the fourth, which is not there, would have what is
// beyond it.
bool ends_in_three_warpgroups(const RegisterLayout& layout, const CoordEnd& end) {
  const std::vector<CoordBit> parts = part_bits(end);
  return end.parts() == 3 &&
         std::is_permutation(layout.warps.begin() + 2, layout.warps.end(), parts.begin(), parts.end());
}

}  // namespace

// Whether tensor cores can read the value from its staged tile: rows of its matrices are rows of panels.
bool ProductPlans::is_panel_operand(BlockValue value, DType dtype) const {
  const BlockOp& op = program_.op(value);
  if (!op.is_load() || !facts_.is_staged(value)) return false;
  return facts_.place(op).dtype == dtype && is_panel(facts_.place(op), op.type.shape);
}

// Whether the value is made, element by element, from a tile that they could read, and all warps can make it
// for them: without room around it, which would have to be filled.
bool ProductPlans::is_cooperative_panel(BlockValue value, DType dtype) const {
  const BlockValue load = facts_.root_load(value);
  return load >= 0 && load != value && is_panel_operand(load, dtype) &&
         makes_panel(facts_.place(load), program_.shape(value)) &&
         program_.op(value).type.element_count() >= 2 * schedule_.workers();  // a word for each thread
}

// Whether tensor cores read the operand of the rows, which is the same for all iterations, from shared memory too: then it
// takes no registers of the loop.
bool ProductPlans::is_kept_panel(BlockValue product, const MatmulPlan& plan) const {
  const BlockValue value = program_.op(product).operands[static_cast<size_t>(plan.m_side)],
                   load = facts_.root_load(value);
  if (!schedule_.shared_a || program_.stage(product) != Stage::loop ||
      program_.stage(value) != Stage::before || load < 0)
    return false;
  return keeps_panel(facts_.place(load), program_.shape(value), value == load && schedule_.producer,
                     facts_.has_three_warpgroups());
}

bool ProductPlans::plan_wgmma(BlockValue product, MatmulPlan& plan) const {
  if (!schedule_.wgmma || !target_.wgmma || !dtype_info(plan.dtype).wgmma) return false;
  const BlockOp& op = program_.op(product);
  plan.m_side = schedule_.warps[0] >= 4 ? 0 : 1;
  const size_t m_side = static_cast<size_t>(plan.m_side), n_side = static_cast<size_t>(plan.n_side());
  const Ints &left = program_.shape(op.operands[0]), &right = program_.shape(op.operands[1]);
  const std::array<int64_t, 2> extents = {left[left.size() - 2], right.back()};
  ProductBits bits{bits_for(extents[m_side]), std::max(kRowGroupBits, bits_for(extents[n_side])),
                   std::max(kInnerBits, bits_for(left.back()))};
  const BlockValue n_operand = op.operands[n_side];
  plan.cooperative[n_side] = is_cooperative_panel(n_operand, plan.dtype);
  if (bits.m < kWgmmaRowBits || !(plan.cooperative[n_side] || is_panel_operand(n_operand, plan.dtype)))
    return false;
  plan.shared[n_side] = true;
  if (schedule_.transform && plan.cooperative[n_side])
    plan.transforms = made_of_stage(
        program_.ops, program_.stages,
        [&](BlockValue load) { return facts_.is_staged(load) ? facts_.inner_dim(load) : -1; }, product,
        n_operand);
  plan.shared[m_side] = is_panel_operand(op.operands[m_side], plan.dtype);
  if (!plan.shared[m_side] && is_kept_panel(product, plan))
    plan.shared[m_side] = plan.cooperative[m_side] = plan.keeps_m = true;
  // No instruction begins within a row of a panel.
  const int n_rank = program_.op(n_operand).type.rank();
  const bool turned = facts_.inner_dim(facts_.root_load(n_operand)) == free_dim(plan.n_side(), n_rank);
  share_among_warpgroups(product, plan, turned ? std::min(bits.n, kPanelBits) : kRowGroupBits, bits);
  place_panels(product, plan, bits);
  plan.wgmma = plan_batch(product, plan) && plan_ends(product, plan);
  return plan.wgmma;
}

// Dimensions of a product's M and N operand, and of its result.
struct ProductPlans::WgmmaDims {
  WgmmaDims(const BlockProgram& program, BlockValue product, const MatmulPlan& plan) {
    const BlockOp& op = program.op(product);
    auto rank = [&](int side) { return program.op(op.operands[static_cast<size_t>(side)]).type.rank(); };
    const int m_side = plan.m_side, n_side = plan.n_side();
    m = free_dim(m_side, op.type.rank());
    n = free_dim(n_side, op.type.rank());
    high_m = free_dim(m_side, rank(m_side));
    high_k = summed_dim(m_side, rank(m_side));
    wide_n = free_dim(n_side, rank(n_side));
    wide_k = summed_dim(n_side, rank(n_side));
  }
  int m, n, high_m, high_k, wide_n, wide_k;
};

// Takes from `left` what warps tell apart; at least 2^`n_least` columns stay.
void ProductPlans::share_among_warpgroups(BlockValue product, MatmulPlan& plan, int n_least,
                                          ProductBits& left) const {
  const WgmmaDims dims(program_, product, plan);
  RegisterLayout &high = plan.m_side == 0 ? plan.a : plan.b, &wide = plan.m_side == 0 ? plan.b : plan.a,
                 &d = plan.d;
  const int m_warps = bits_for(schedule_.warps[static_cast<size_t>(plan.m_side)]),
            wide_warps = plan.m_side == 0 ? bits_for(schedule_.warps[1]) : 0;
  for (std::vector<CoordBit>* warps : {&high.warps, &wide.warps, &d.warps})
    warps->assign(static_cast<size_t>(warp_bits_), {});
  for (int position = 0; position < warp_bits_; ++position) {
    const size_t p = static_cast<size_t>(position);
    const bool by_m = position < m_warps, by_k = position >= m_warps + wide_warps;
    if (position < 2) {  // within a warpgroup
      d.warps[p] = {dims.m, 4 + position};
      if (!plan.shared[static_cast<size_t>(plan.m_side)]) high.warps[p] = {dims.high_m, 4 + position};
    } else if (by_m && left.m > kWgmmaRowBits) {
      d.warps[p] = {dims.m, --left.m};
      high.warps[p] = {dims.high_m, left.m};
    } else if (by_k && left.k > kInnerBits) {
      high.warps[p] = {dims.high_k, --left.k};
      wide.warps[p] = {dims.wide_k, left.k};
      plan.partial_warps |= 1u << position;
    } else if (left.n > n_least) {
      d.warps[p] = {dims.n, --left.n};
      wide.warps[p] = {dims.wide_n, left.n};
    }
  }
}

// Registers of the sums, and of the M operand; of operands in shared memory registers count instructions.
void ProductPlans::place_panels(BlockValue product, MatmulPlan& plan, const ProductBits& bits) const {
  const WgmmaDims dims(program_, product, plan);
  RegisterLayout &high = plan.m_side == 0 ? plan.a : plan.b, &wide = plan.m_side == 0 ? plan.b : plan.a,
                 &d = plan.d;
  const int one = std::min(bits.n, bits_for(kMostWgmmaColumns));
  plan.columns = 1 << one;
  plan.steps = 1 << (bits.k - kInnerBits);
  const int64_t inner = program_.shape(program_.op(product).operands[0]).back();
  plan.filled_steps =
      plan.partial_warps ? plan.steps : static_cast<int>(divide_up(inner, int64_t{1} << kInnerBits));
  plan.down = 1 << (bits.m - kWgmmaRowBits);
  plan.across = 1 << (bits.n - one);
  const RegisterLayout sums =
      fragment_layout(wgmma_accumulator(plan.columns, "m", "n"),
                      {{"m", coord_bits(dims.m, kWgmmaRowBits)}, {"n", coord_bits(dims.n, one)}});
  d.lanes = sums.lanes;
  d.registers = sums.registers;
  append_bits(d.registers, dims.n, one, bits.n);
  append_bits(d.registers, dims.m, kWgmmaRowBits, bits.m);
  if (!plan.shared[static_cast<size_t>(plan.m_side)]) {
    const RegisterLayout rows = fragment_layout(
        wgmma_a(plan.mma_kind(), "m", "k"),
        {{"m", coord_bits(dims.high_m, kWgmmaRowBits)}, {"k", coord_bits(dims.high_k, kInnerBits)}});
    high.lanes = rows.lanes;
    high.registers = rows.registers;
  }
  append_bits(high.registers, dims.high_k, kInnerBits, bits.k);
  append_bits(high.registers, dims.high_m, kWgmmaRowBits, bits.m);
  append_bits(wide.registers, dims.wide_k, kInnerBits, bits.k);
  append_bits(wide.registers, dims.wide_n, one, bits.n);
}

// Whether one instruction has all columns, and may leave out those that the tile has room for and the operand has not.
bool ProductPlans::columns_end_early(BlockValue product, const CoordEnd& end, const MatmulPlan& plan) const {
  return schedule_.producer && !plan.cooperative[static_cast<size_t>(plan.n_side())] && plan.across == 1 &&
         end.extent < plan.columns && end.extent % kColumnUnit == 0 && plan.d.ends_in_registers(end) &&
         is_stored_alone(program_.ops, product);
}

// Where an extent is no power of two an instruction has fewer columns, or there are fewer of them along the
// rows, or three warpgroups. False if registers or warps that are not the last ones would have to be left out.
bool ProductPlans::plan_ends(BlockValue product, MatmulPlan& plan) const {
  const WgmmaDims dims(program_, product, plan);
  for (int side = 0; side < 2; ++side) {
    const size_t s = static_cast<size_t>(side);
    const BlockValue operand = program_.op(product).operands[s];
    const int rank = program_.op(operand).type.rank(), free = free_dim(side, rank);
    auto is_cut_short = [&](int dim) {
      return plan.shared[s] && !plan.cooperative[s] &&
             is_unpadded(facts_.kernel, schedule_, program_.op(operand), facts_.place(operand), dim);
    };
    if (is_cut_short(summed_dim(side, rank))) return false;
    const bool is_m = side == plan.m_side, in_warps = is_m && facts_.has_three_warpgroups();
    const int64_t extent = program_.shape(operand)[static_cast<size_t>(free)];
    const CoordEnd end{is_m ? dims.m : dims.n, extent};
    const bool ends_early = is_cut_short(free) || (!is_m && columns_end_early(product, end, plan));
    if (!in_warps && !ends_early) continue;
    if (in_warps ? !ends_in_three_warpgroups(plan.d, end) : !plan.d.ends_in_registers(end)) return false;
    plan.d.ends.push_back(end);
    if (!is_m) {
      plan.columns = static_cast<int>(extent);
      if (extent > kMostWgmmaColumns) return false;
      continue;
    }
    (plan.m_side == 0 ? plan.a : plan.b).ends.push_back({free, extent});
    if (!in_warps) plan.down = static_cast<int>(extent >> kWgmmaRowBits);
  }
  return true;
}

// Room in staged tiles for whole instructions.
void ProductPlans::note_panels(BlockValue value, const MatmulPlan& plan) {
  const BlockOp& op = program_.op(value);
  for (int side = 0; side < 2; ++side) {
    if (!plan.shared[side] || plan.cooperative[side]) continue;
    const BlockValue operand = op.operands[static_cast<size_t>(side)];
    const int rank = program_.op(operand).type.rank();
    Ints& least = panels_[operand];
    least.resize(static_cast<size_t>(rank), 1);
    auto need = [&](int dim, int64_t extent) {
      least[static_cast<size_t>(dim)] = std::max(least[static_cast<size_t>(dim)], extent);
    };
    need(summed_dim(side, rank), int64_t{1} << kInnerBits);
    need(free_dim(side, rank), int64_t{1} << (side == plan.m_side ? kWgmmaRowBits : kRowGroupBits));
    need(facts_.inner_dim(operand), 16);  // rows of 32 bytes
  }
}

}  // namespace quern
