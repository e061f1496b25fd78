// A product that is software-pipelined: which one, what issues it in the next iteration, and what an iteration does when
// it has landed. core/kernel/passes/pipeline_products makes the loop.
#include "core/codegen/block_emitter.h"
#include "core/kernel/passes/tile_loop.h"

namespace quern {

BlockValue BlockEmitter::pipelined_n_operand() const {
  return program_.op(pipelined_.value).operands[static_cast<size_t>(1 - plans_.at(pipelined_.value).m_side)];
}

void BlockEmitter::find_pipelined_product() {
  if (schedule_.producer) return;
  PipelinedProduct found;
  for (const auto& [value, plan] : plans_) {
    if (!plan.wgmma || program_.stage(value) != Stage::loop) continue;
    BlockValue& place = is_summed(value) ? found.value : found.behind;
    if (place >= 0) return;
    place = value;
  }
  if (found.behind < 0 || found.behind > found.value) return;
  pipelined_ = std::move(found);
  const MatmulPlan& plan = plans_.at(pipelined_.value);
  const BlockValue m_operand = program_.op(pipelined_.value).operands[static_cast<size_t>(plan.m_side)];
  if (plan.shared[static_cast<size_t>(plan.m_side)] || program_.stage(m_operand) != Stage::loop ||
      !plan.cooperative[static_cast<size_t>(1 - plan.m_side)] || kernel_.trip_count < schedule_.stages)
    pipelined_ = {};
}

// What asks for the product of the iteration before.
Body BlockEmitter::pipelined_group() {
  const MatmulPlan& plan = plans_.at(pipelined_.value);
  const BlockOp& op = program_.op(pipelined_.value);
  pipelined_.sums = fresh_registers(base_name(program_.users[static_cast<size_t>(pipelined_.value)][0]), Scalar::f32,
                               plan.d.count());
  const Spread& spread = plan.m_side == 0 ? plan.a : plan.b;
  pipelined_.words = fresh_registers(base_name(op.operands[static_cast<size_t>(plan.m_side)]) + "_pairs",
                                Scalar::u32, spread.count() / 2);
  Builder(declared_).declare(pipelined_.words, true);
  pipelined_.group = wgmma_group(pipelined_.value, pipelined_.sums, pipelined_.words, true);
  return pipelined_.group;
}

// The tile that the product of the iteration before of this iteration takes is made now; when that of the iteration before has
// landed its sums can be scaled, and the other operand put where it takes it from.
void BlockEmitter::finish_pipelined_iteration(BlockValue accumulator, const Array& sums) {
  const MatmulPlan& plan = plans_.at(pipelined_.value);
  const BlockValue m_operand = program_.op(pipelined_.value).operands[static_cast<size_t>(plan.m_side)];
  const Spread& spread = plan.m_side == 0 ? plan.a : plan.b;
  const int summed = summed_dim(plan.m_side, program_.op(m_operand).type.rank());
  make_cooperatively(pipelined_.value, 1 - plan.m_side);
  pipelined_.rest = ir::wait_for_products({pipelined_.sums});
  Builder to(pipelined_.rest);
  if (program_.op(accumulator).combine == Combine::rescaled_sum) to.add(rescale(accumulator, sums));
  to.unrolled("w", spread.count() / 2, [&](Builder& each, const Expr& w) {
    each.assign(ir::element(pipelined_.words, w), word_of(m_operand, spread, plan.dtype, summed, w * 2));
  });
}

ir::PipelinedProduct BlockEmitter::draft_pipelined() {
  const CooperativeTile& made = cooperative_tile(pipelined_.value, 1 - plans_.at(pipelined_.value).m_side);
  ir::PipelinedProduct out;
  out.group = std::move(pipelined_.group);
  out.rest = std::move(pipelined_.rest);
  out.sums = {pipelined_.sums};
  out.tile = made.tile.memory;
  out.previous_tile = made.previous_memory;
  out.buffer = made.buffer;
  out.copies = made.copies;
  out.tile_bytes = made.tile.bytes;
  return out;
}

}  // namespace quern
