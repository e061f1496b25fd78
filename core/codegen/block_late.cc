// A product that is software-pipelined: issued an iteration late. Where the loop makes a product, computes
// something from it, and sums the product of that with a tile that all warps make together (attention with
// normed values), the warps would have to wait for each other before the second product. So it is issued in the
// next iteration, behind the first product of that: the barrier that every iteration has is between them, and
// tensor cores make it while the threads compute.
//
// For the iteration before the first there are zeros. The barrier of an iteration stands behind what the threads
// compute, in front of the wait for the late product: compilers move waits to the front of what has no barriers
// or branches. Stages have been read by then, and are filled again.
#include "core/codegen/block_emitter.h"

namespace quern {

BlockValue BlockEmitter::late_flat() const {
  return program_.op(late_.value).operands[static_cast<size_t>(1 - plans_.at(late_.value).tall)];
}

void BlockEmitter::find_late_product() {
  if (schedule_.producer) return;
  LateProduct late;
  for (const auto& [value, plan] : plans_) {
    if (!plan.wgmma || program_.stage(value) != Stage::loop) continue;
    BlockValue& place = is_summed(value) ? late.value : late.behind;
    if (place >= 0) return;
    place = value;
  }
  if (late.behind < 0 || late.behind > late.value) return;
  late_ = std::move(late);
  const MatmulPlan& plan = plans_.at(late_.value);
  const BlockValue tall = program_.op(late_.value).operands[static_cast<size_t>(plan.tall)];
  if (plan.shared[static_cast<size_t>(plan.tall)] || program_.stage(tall) != Stage::loop ||
      !plan.made_by_all[static_cast<size_t>(1 - plan.tall)] || kernel_.turns < schedule_.stages)
    late_ = {};
}

// What asks for the product of the iteration before.
Body BlockEmitter::late_group() {
  const MatmulPlan& plan = plans_.at(late_.value);
  const BlockOp& op = program_.op(late_.value);
  late_.sums = fresh_registers(base_name(program_.users[static_cast<size_t>(late_.value)][0]), Scalar::f32,
                               plan.d.count());
  const Spread& spread = plan.tall == 0 ? plan.a : plan.b;
  late_.words = fresh_registers(base_name(op.operands[static_cast<size_t>(plan.tall)]) + "_pairs",
                                Scalar::u32, spread.count() / 2);
  Builder(declared_).declare(late_.words, true);
  late_.group = wgmma_group(late_.value, late_.sums, late_.words, true);
  return late_.group;
}

// The tile that the late product of this iteration takes is made now; when that of the iteration before has
// landed its sums can be scaled, and the other operand put where it takes it from.
void BlockEmitter::finish_late_turn(BlockValue accumulator, const Array& sums) {
  const MatmulPlan& plan = plans_.at(late_.value);
  const BlockValue tall = program_.op(late_.value).operands[static_cast<size_t>(plan.tall)];
  const Spread& spread = plan.tall == 0 ? plan.a : plan.b;
  const int summed_dim = program_.op(tall).type.rank() - (plan.tall == 0 ? 1 : 2);
  make_by_all(late_flat(), plan, program_.op(late_flat()).type.rank() - (plan.tall == 0 ? 2 : 1));
  late_.rest = wgmma_landing({late_.sums});
  Builder to(late_.rest);
  if (program_.op(accumulator).combine == Combine::rescaled_sum) to.add(rescale(accumulator, sums));
  to.unrolled("w", spread.count() / 2, [&](Builder& each, const Expr& w) {
    each.assign(ir::element(late_.words, w), word_of(tall, spread, plan.dtype, summed_dim, w * 2));
  });
}

// The tiles that this iteration makes, and that of the iteration before, one after the other.
Body BlockEmitter::late_tiles() const {
  const MadeTile& made = made_.at(late_flat());
  Body body;
  Builder to(body);
  auto tile = [&](const Symbol& memory, int iterations) {
    const int64_t elements = made.tile.bytes / ir::bytes_of(memory->type);
    to.let(memory, ir::address(made.buffer, (Expr(iteration_number_) + iterations) % made.copies * elements));
  };
  tile(made.tile.memory, 0);
  tile(made.late_memory, made.copies - 1);
  return body;
}

Body BlockEmitter::late_loop(const BlockPlan& plan, Body work) const {
  const MadeTile& made = made_.at(late_flat());
  const int ahead = schedule_.stages;
  Body out;
  Builder to(out);
  to.emit(Instr::block_barrier);
  to.scope([&](Builder& zeros) {
    zeros.let(iteration_number_, 0);
    zeros.add(late_tiles());
    const Symbol v = ir::make_vector("v", Scalar::u32, 4);
    zeros.declare(v, true);
    const int workers = schedule_.workers();
    const int64_t vectors = made.tile.bytes / 16;
    zeros.unrolled("c", (vectors + workers - 1) / workers, [&](Builder& each, const Expr& c) {
      const Expr i = each.named("i", ir::thread_index() + c * workers);
      each.when(vectors % workers == 0 ? ir::truth(true) : less(i, vectors), [&](Builder& there) {
        there.emit(Instr::store_shared, {ir::address(made.late_memory, i * 8), v}, {Scalar::u32, 4});
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
  to.rolled(step, 0, kernel_.turns, [&](Builder& each) {
    each.let(iteration_number_, step);
    for (const Body& part : {stage_tiles(plan), iteration_, straight_fetch_, late_tiles(), tma_wait(), work})
      each.add(part);
    wait_for_copies(each, ahead - 2);
    each.when(less(Expr(step) + ahead, kernel_.turns), [&](Builder& more) {
      more.let(iteration_number_, Expr(step) + ahead);
      more.add(fetch_tiles(plan));
    });
    commit_copies(each);
    each.add(late_.rest);
  });

  to.scope([&](Builder& last) {
    last.let(iteration_number_, kernel_.turns);
    last.add(late_tiles());
    last.emit(Instr::wgmma_fence);
    last.add(late_.group);
    last.add(wgmma_landing({late_.sums}));
  });
  if (!staged_fetch_.empty()) to.emit(Instr::cp_async_wait, {}, {0});
  return out;
}

}  // namespace quern
