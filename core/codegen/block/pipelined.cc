#include "core/codegen/block/pipelined.h"

#include "core/kernel/passes/tile_loop.h"

namespace quern {

Body PipelinedProduct::issue() {
  const size_t m_side = static_cast<size_t>(plan().m_side);
  const BlockValue accumulator = program_.users[static_cast<size_t>(product())][0];
  sums_ = fresh_registers(base_name(accumulator), Scalar::f32, plan().d.count());
  words_ = fresh_registers(base_name(program_.op(product()).operands[m_side]) + "_pairs", Scalar::u32,
                           plan().operand(plan().m_side).count() / 2);
  Builder(body_.declared).declare(words_, true);
  group_ = products_.wgmma_group(product(), sums_, words_, true);
  return group_;
}

void PipelinedProduct::finish_iteration(const std::function<Body()>& rescale) {
  const RegisterLayout& layout = plan().operand(plan().m_side);
  const int summed = summed_dim(plan().m_side, program_.op(m_operand()).type.rank());
  operands_.make_cooperatively(product(), plan().n_side());
  rest_ = ir::wait_for_products({sums_});
  Builder to(rest_);
  to.add(rescale());
  to.unrolled("w", layout.count() / 2, [&](Builder& each, const Expr& w) {
    each.assign(ir::element(words_, w), operands_.word_of(m_operand(), layout, plan(), summed, w * 2));
  });
}

ir::PipelinedProduct PipelinedProduct::draft() {
  const CooperativeTile& made = operands_.cooperative_tile(product(), plan().n_side());
  ir::PipelinedProduct out;
  out.group = std::move(group_);
  out.rest = std::move(rest_);
  out.sums = {sums_};
  out.tile = made.tile.memory;
  out.previous_tile = made.previous_memory;
  out.buffer = made.buffer;
  out.copies = made.copies;
  out.tile_bytes = made.tile.bytes;
  return out;
}

}  // namespace quern
