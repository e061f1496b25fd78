#include "core/codegen/block/product_plans.h"

#include <algorithm>

namespace quern {

namespace {

constexpr int kLeastSharedWords = 32;  // of a thread: making fewer again costs no more than a barrier

}  // namespace

ProductPlans::ProductPlans(const BlockFacts& facts)
    : facts_(facts),
      program_(facts.program),
      schedule_(facts.schedule),
      target_(facts.target),
      warp_bits_(facts.warp_bits) {
  for (BlockValue value = 0; value < facts_.count(); ++value) {
    if (!program_.is_compute(value, OpKind::contraction)) continue;
    MatmulPlan plan = plan_matmul(value);
    if (!plan.tensor_cores) plan = plan_fma(value);
    plans_[value] = plan;
    demands_.emplace(value, plan.d);
    if (plan.fma)
      note_fma_operands(value, plan);
    else
      note_demands(value, plan);
  }
  find_pipelined();
}

// Whatever is computed element by element from the same tiles as an operand is best done where they are.
void ProductPlans::note_demands(BlockValue product, const MatmulPlan& plan) {
  if (plan.wgmma) {
    note_panels(product, plan);
    for (BlockValue each : plan.transforms)
      transforms_[each] = program_.op(product).operands[static_cast<size_t>(plan.n_side())];
  }
  for (int side = 0; side < 2; ++side) {
    const size_t s = static_cast<size_t>(side);
    if (plan.shared[s] && !plan.cooperative[s]) continue;
    const RegisterLayout layout = operand_layout(product, side);
    std::vector<BlockValue> open = {program_.op(product).operands[s]};
    while (!open.empty()) {
      const BlockValue next = open.back();
      open.pop_back();
      demands_.emplace(next, layout);
      if (!program_.is_compute(next, OpKind::elementwise)) continue;
      for (BlockValue operand : program_.op(next).operands)
        if (program_.shape(operand) == program_.shape(next)) open.push_back(operand);
    }
  }
}

const RegisterLayout* ProductPlans::demand(BlockValue value) const {
  const auto at = demands_.find(value);
  return at == demands_.end() ? nullptr : &at->second;
}

const Ints* ProductPlans::panel_extents(BlockValue load) const {
  const auto at = panels_.find(load);
  return at == panels_.end() ? nullptr : &at->second;
}

std::optional<int> ProductPlans::turned(BlockValue load) const {
  const auto at = turned_.find(load);
  return at == turned_.end() ? std::nullopt : std::optional(at->second);
}

BlockValue ProductPlans::transforms(BlockValue value) const {
  const auto at = transforms_.find(value);
  return at == transforms_.end() ? -1 : at->second;
}

// Appends the bits that tell the matrices of a batch apart.
bool ProductPlans::plan_batch(BlockValue value, MatmulPlan& plan) const {
  const BlockOp& op = program_.op(value);
  const Ints &a = program_.shape(op.operands[0]), &b = program_.shape(op.operands[1]), &d = op.type.shape;
  const int ra = static_cast<int>(a.size()), rb = static_cast<int>(b.size()), rd = static_cast<int>(d.size());
  for (int dim = rd - 3; dim >= 0; --dim) {
    const int64_t extent = d[static_cast<size_t>(dim)];
    const int da = dim - (rd - ra), db = dim - (rd - rb);
    const bool in_a = da >= 0 && a[static_cast<size_t>(da)] == extent,
               in_b = db >= 0 && b[static_cast<size_t>(db)] == extent;
    for (int bit = 0; bit < bits_for(extent); ++bit) {
      plan.d.registers.push_back({dim, bit});
      plan.batch *= 2;
      if (in_a) plan.a.registers.push_back({da, bit});
      if (in_b) plan.b.registers.push_back({db, bit});
      plan.batch_a *= in_a ? 2 : 1;
      plan.batch_b *= in_b ? 2 : 1;
    }
  }
  // A batch that is the same for some dimensions and different for others would need its own count.
  return (plan.batch_a == 1 || plan.batch_a == plan.batch) &&
         (plan.batch_b == 1 || plan.batch_b == plan.batch);
}

// Whether warps need the same tile of what is computed, element by element, from a staged one: then it is
// made once, by all, and left in shared memory in words. `bits` are those of its coordinates in `fragments`,
// which a warp would make for itself.
bool ProductPlans::is_cooperative(BlockValue value, DType dtype, const RegisterLayout& fragments) const {
  const BlockValue load = facts_.root_load(value);
  if (load < 0 || load == value || !facts_.is_staged(load)) return false;
  const Ints& shape = program_.shape(value);
  const int rank = static_cast<int>(shape.size()), inner = facts_.inner_dim(load);
  if (inner < rank - 2 || shape[static_cast<size_t>(inner)] % 8 != 0) return false;
  int bits = -kLaneBits - (is_packed_in_pairs(dtype) ? 1 : 0);
  for (int64_t extent : shape) bits += bits_for(extent);
  for (const CoordBit& bit : fragments.warps) bits -= bit.dim >= 0;
  return bits >= bits_for(kLeastSharedWords) && std::any_of(fragments.warps.begin(), fragments.warps.end(),
                                                            [](const CoordBit& bit) { return bit.dim < 0; });
}

RegisterLayout ProductPlans::cooperative_layout(BlockValue value, DType dtype) const {
  return facts_.blocked(value, dtype, facts_.inner_dim(facts_.root_load(value)));
}

RegisterLayout ProductPlans::operand_layout(BlockValue product, int side) const {
  const MatmulPlan& plan = of(product);
  const size_t s = static_cast<size_t>(side);
  return plan.cooperative[s] ? cooperative_layout(program_.op(product).operands[s], plan.dtype)
                             : plan.operand(side);
}

BlockValue ProductPlans::pipelined_n_operand() const {
  return program_.op(pipelined_.value).operands[static_cast<size_t>(of(pipelined_.value).n_side())];
}

// A sum whose M operand comes from registers, behind a product that it is made of: scores, then what they
// weigh.
void ProductPlans::find_pipelined() {
  if (schedule_.producer) return;
  Pipelined found;
  for (const auto& [value, plan] : plans_) {
    if (!plan.wgmma || program_.stage(value) != Stage::loop) continue;
    BlockValue& place = facts_.is_summed(value) ? found.value : found.behind;
    if (place >= 0) return;
    place = value;
  }
  if (found.behind < 0 || found.behind > found.value) return;
  const MatmulPlan& plan = of(found.value);
  const size_t m_side = static_cast<size_t>(plan.m_side), n_side = static_cast<size_t>(plan.n_side());
  const BlockValue m_operand = program_.op(found.value).operands[m_side];
  if (!plan.shared[m_side] && program_.stage(m_operand) == Stage::loop && plan.cooperative[n_side] &&
      facts_.kernel.trip_count >= schedule_.stages)
    pipelined_ = found;
}

}  // namespace quern
