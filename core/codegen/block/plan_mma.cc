// Products by mma.sync: fragments in registers.
#include <algorithm>

#include "core/codegen/arithmetic.h"
#include "core/codegen/block/product_plans.h"

namespace quern {

namespace {

// Takes bits first .. last - 1 that are not in `taken`.
std::vector<int> others(int count, const std::vector<int>& taken) {
  std::vector<int> out;
  for (int bit = 0; bit < count; ++bit)
    if (std::find(taken.begin(), taken.end(), bit) == taken.end()) out.push_back(bit);
  return out;
}

std::vector<CoordBit> coord_bits(int dim, const std::vector<int>& bits) {
  std::vector<CoordBit> out;
  for (int bit : bits) out.push_back({dim, bit});
  return out;
}

int vector_bits_of(DType dtype) { return bits_for(16 / static_cast<int64_t>(dtype_size(dtype))); }

}  // namespace

bool ProductPlans::loads_directly(BlockValue load, int dim) const {
  return load >= 0 && !facts_.is_staged(load) && facts_.inner_dim(load) == dim;
}

// Which warps have which rows, columns and part of the inner dimension; gives the bits that are left to each
// of them.
ProductPlans::ProductBits ProductPlans::share_among_warps(BlockValue product, MatmulPlan& plan) const {
  const BlockOp& op = program_.op(product);
  const Ints &a = program_.shape(op.operands[0]), &b = program_.shape(op.operands[1]);
  const int ra = static_cast<int>(a.size()), rb = static_cast<int>(b.size()), rd = op.type.rank();
  const int k_least = 3 + plan.pair_bits();
  ProductBits left{std::max(4, bits_for(a[a.size() - 2])), std::max(3, bits_for(b.back())),
                   std::max(k_least, bits_for(a.back()))};
  const int m_warps = bits_for(schedule_.warps[0]), n_warps = bits_for(schedule_.warps[1]);
  plan.a.warps.resize(static_cast<size_t>(warp_bits_));
  plan.b.warps = plan.d.warps = plan.a.warps;
  for (int position = 0; position < warp_bits_; ++position) {
    const size_t p = static_cast<size_t>(position);
    const bool by_m = position < m_warps, by_k = position >= m_warps + n_warps;
    if (by_m && left.m > 4) {
      plan.a.warps[p] = {ra - 2, --left.m};
      plan.d.warps[p] = {rd - 2, left.m};
    } else if (by_k && left.k > k_least) {
      plan.a.warps[p] = {ra - 1, --left.k};
      plan.b.warps[p] = {rb - 2, left.k};
      plan.partial_warps |= 1u << position;
    } else if (left.n > 3) {
      plan.b.warps[p] = {rb - 1, --left.n};
      plan.d.warps[p] = {rd - 1, left.n};
    }
  }
  return left;
}

// An earlier product whose result is the left operand as it lies; null if there is none.
const MatmulPlan* ProductPlans::earlier_product(BlockValue product) const {
  BlockValue source = program_.op(product).operands[0];
  const Ints& shape = program_.shape(source);
  while (!plans_.contains(source) && program_.is_compute(source, OpKind::elementwise)) {
    BlockValue next = -1;
    for (BlockValue operand : program_.op(source).operands)
      if (program_.shape(operand) == shape) next = operand;
    if (next < 0) break;
    source = next;
  }
  const auto at = plans_.find(source);
  return at != plans_.end() && at->second.tensor_cores ? &at->second : nullptr;
}

// The inner dimension. Rows of a staged tile are read in their own order, which keeps them in different
// banks.
ProductPlans::InnerBits ProductPlans::inner_bits(BlockValue product, const MatmulPlan& plan,
                                                 int k_left) const {
  const BlockOp& op = program_.op(product);
  const BlockValue load_a = facts_.root_load(op.operands[0]), load_b = facts_.root_load(op.operands[1]);
  const int ra = program_.op(op.operands[0]).type.rank(), rb = program_.op(op.operands[1]).type.rank();
  const bool staged = (load_a >= 0 && facts_.is_staged(load_a)) || (load_b >= 0 && facts_.is_staged(load_b));
  InnerBits out{{plan.pair_bits(), plan.pair_bits() + 1}, {}};
  if (const MatmulPlan* const earlier = earlier_product(product)) {
    const std::vector<int> lanes = {earlier->d.lanes[0].bit, earlier->d.lanes[1].bit};
    const int pair = earlier->d.registers[0].bit;
    if (std::max({lanes[0], lanes[1], pair}) < k_left) out = {lanes, {pair}};
  } else if (!staged && (loads_directly(load_a, ra - 1) || loads_directly(load_b, rb - 2))) {
    const int vector = std::min(vector_bits_of(plan.dtype), k_left - 2);
    out.lanes = {vector, vector + 1};
  }
  std::vector<int> taken = out.lanes;
  taken.insert(taken.end(), out.registers.begin(), out.registers.end());
  for (int bit : others(k_left, taken)) out.registers.push_back(bit);
  return out;
}

// mma counts rows, columns and the inner dimension in its own order; which bits of the tile's coordinates
// these are is free. Columns and inner dimension are counted so that what a lane holds of an operand that
// comes straight from global memory are neighbours there.
MatmulPlan ProductPlans::plan_matmul(BlockValue product) const {
  MatmulPlan plan;
  const BlockOp& op = program_.op(product);
  const BlockValue left = op.operands[0], right = op.operands[1];
  const std::optional<DType> dtype = tensor_core_dtype(program_, product, schedule_.tf32 || schedule_.tf32x3);
  if (!dtype) return plan;
  plan.dtype = *dtype;
  plan.tf32x3 = schedule_.tf32x3 && !tensor_core_dtype(program_, product, false);
  plan.tensor_cores = true;
  if (MatmulPlan by_groups = plan; plan_wgmma(product, by_groups)) return by_groups;
  const Ints& a = program_.shape(left);
  plan.low_rows = a[a.size() - 2] <= 8;
  const ProductBits bits = share_among_warps(product, plan);
  plan.cooperative = {is_cooperative(left, plan.dtype, plan.a), is_cooperative(right, plan.dtype, plan.b)};
  const InnerBits inner = inner_bits(product, plan, bits.k);
  const int rb = program_.op(right).type.rank();
  const int vector =
      loads_directly(facts_.root_load(right), rb - 1) ? std::min(vector_bits_of(plan.dtype), bits.n - 3) : 0;
  place_fragments(product, plan, bits, inner, vector);
  plan.tensor_cores = plan_batch(product, plan);
  return plan;
}

// Of a row of the right operand, lanes have columns that are 2^`vector` apart.
void ProductPlans::place_fragments(BlockValue product, MatmulPlan& plan, const ProductBits& bits,
                                   const InnerBits& inner, int vector) const {
  const BlockOp& op = program_.op(product);
  const int ra = program_.op(op.operands[0]).type.rank(), rb = program_.op(op.operands[1]).type.rank(),
            rd = op.type.rank();
  // In the order in which mma counts them.
  const std::vector<int> rows = {0, 1, 2, 3}, columns = {vector, vector + 1, vector + 2};
  const size_t pairs = static_cast<size_t>(plan.pair_bits());
  std::vector<int> k(inner.registers.begin(), inner.registers.begin() + plan.pair_bits());
  k.insert(k.end(), inner.lanes.begin(), inner.lanes.end());
  k.push_back(inner.registers[pairs]);
  auto place = [](RegisterLayout& to, const Layout& fragment, const std::vector<CoordBit>& m,
                  const std::vector<CoordBit>& n) {
    RegisterLayout placed = fragment_layout(fragment, {{"m", m}, {"n", n}});
    to.registers = std::move(placed.registers);
    to.lanes = placed.lanes;
  };
  place(plan.a, mma_a(plan.mma_kind(), "m", "n"), coord_bits(ra - 2, rows), coord_bits(ra - 1, k));
  place(plan.b, mma_b(plan.mma_kind(), "m", "n"), coord_bits(rb - 2, k), coord_bits(rb - 1, columns));
  place(plan.d, mma_c("m", "n"), coord_bits(rd - 2, rows), coord_bits(rd - 1, columns));
  if (plan.low_rows) std::erase(plan.a.registers, CoordBit{ra - 2, 3});
  // More fragments: along the inner dimension, columns and rows.
  const std::vector<int> steps(inner.registers.begin() + plan.pair_bits() + 1, inner.registers.end()),
      across = others(bits.n, columns), down = others(bits.m, rows);
  auto repeat = [](RegisterLayout& to, int dim, const std::vector<int>& along) {
    for (const CoordBit& bit : coord_bits(dim, along)) to.registers.push_back(bit);
  };
  repeat(plan.a, ra - 1, steps);
  repeat(plan.a, ra - 2, down);
  repeat(plan.b, rb - 2, steps);
  repeat(plan.b, rb - 1, across);
  repeat(plan.d, rd - 1, across);
  repeat(plan.d, rd - 2, down);
  plan.steps = 1 << steps.size();
  plan.across = 1 << across.size();
  plan.down = 1 << down.size();
}

}  // namespace quern
