// A product that is software-pipelined: issued an iteration found. Where the loop makes a product, computes
// something from it, and sums the product of that with a tile that all warps make together (attention with
// normed values), the warps would have to wait for each other before the second product. So it is issued in the
// next iteration, behind the first product of that: the barrier that every iteration has is between them, and
// tensor cores make it while the threads compute.
//
// For the iteration before the first there are zeros. The barrier of an iteration stands behind what the threads
// compute, in front of the wait for the product of the iteration before: compilers move waits to the front of what has no barriers
// or branches. Stages have been read by then, and are filled again.
#include "core/codegen/block_emitter.h"

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
  const int summed_dim = program_.op(m_operand).type.rank() - (plan.m_side == 0 ? 1 : 2);
  make_cooperatively(pipelined_n_operand(), plan, program_.op(pipelined_n_operand()).type.rank() - (plan.m_side == 0 ? 2 : 1));
  pipelined_.rest = wgmma_wait({pipelined_.sums});
  Builder to(pipelined_.rest);
  if (program_.op(accumulator).combine == Combine::rescaled_sum) to.add(rescale(accumulator, sums));
  to.unrolled("w", spread.count() / 2, [&](Builder& each, const Expr& w) {
    each.assign(ir::element(pipelined_.words, w), word_of(m_operand, spread, plan.dtype, summed_dim, w * 2));
  });
}

// The tiles that this iteration makes, and that of the iteration before, one after the other.
Body BlockEmitter::pipelined_tiles() const {
  const CooperativeTile& made = cooperative_tiles_.at(pipelined_n_operand());
  Body body;
  Builder to(body);
  auto tile = [&](const Symbol& memory, int iterations) {
    const int64_t elements = made.tile.bytes / ir::bytes_of(memory->type);
    to.let(memory, ir::address(made.buffer, (Expr(iteration_number_) + iterations) % made.copies * elements));
  };
  tile(made.tile.memory, 0);
  tile(made.previous_memory, made.copies - 1);
  return body;
}

Body BlockEmitter::pipelined_loop(const BlockPlan& plan, Body work) const {
  const CooperativeTile& made = cooperative_tiles_.at(pipelined_n_operand());
  const int ahead = schedule_.stages;
  Body out;
  Builder to(out);
  to.emit(Instr::block_barrier);
  to.scope([&](Builder& zeros) {
    zeros.let(iteration_number_, 0);
    zeros.add(pipelined_tiles());
    const Symbol v = ir::make_vector("v", Scalar::u32, 4);
    zeros.declare(v, true);
    const int workers = schedule_.workers();
    const int64_t vectors = made.tile.bytes / 16;
    zeros.unrolled("c", (vectors + workers - 1) / workers, [&](Builder& each, const Expr& c) {
      const Expr i = each.named("i", ir::thread_index() + c * workers);
      each.when(vectors % workers == 0 ? ir::truth(true) : less(i, vectors), [&](Builder& there) {
        there.emit(Instr::store_shared, {ir::address(made.previous_memory, i * 8), v}, {Scalar::u32, 4});
      });
    });
    zeros.emit(Instr::fence_async);
  });
  to.rolled(iteration_number_, 0, ahead, [&](Builder& first) {
    first.add(fetch_tiles(plan));
    commit_copies(first);
  });
  wait_for_copies(to, ahead - 1);

  const Symbol step = ir::make_variable("step", Scalar::i32);
  to.rolled(step, 0, kernel_.trip_count, [&](Builder& each) {
    each.let(iteration_number_, step);
    for (const Body& part : {stage_tiles(plan), iteration_, direct_fetch_, pipelined_tiles(), tma_wait(), work})
      each.add(part);
    wait_for_copies(each, ahead - 2);
    each.when(less(Expr(step) + ahead, kernel_.trip_count), [&](Builder& more) {
      more.let(iteration_number_, Expr(step) + ahead);
      more.add(fetch_tiles(plan));
    });
    commit_copies(each);
    each.add(pipelined_.rest);
  });

  to.scope([&](Builder& last) {
    last.let(iteration_number_, kernel_.trip_count);
    last.add(pipelined_tiles());
    last.emit(Instr::wgmma_fence);
    last.add(pipelined_.group);
    last.add(wgmma_wait({pipelined_.sums}));
  });
  if (!staged_fetch_.empty()) to.emit(Instr::cp_async_wait, {}, {0});
  return out;
}

}  // namespace quern
