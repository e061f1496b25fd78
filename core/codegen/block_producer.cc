// A producer warp: one thread asks TMA for the tiles of all iterations, while the other warps compute. Two
// mbarriers guard each stage: `full`, when the bytes of an iteration are there, and `empty`, when every warp
// has read them. So no iteration has a barrier of all threads, and a slow warp stops the others only when it
// is behind by the whole ring.
#include <algorithm>

#include "core/codegen/block_emitter.h"

namespace quern {

// Nobody but TMA fills stages: what threads copy, all of them would have to wait for.
Status BlockEmitter::check_producer() const {
  if (!schedule_.producer) return {};
  const auto loads = std::count_if(program_.ops.begin(), program_.ops.end(), [&](const BlockOp& op) {
    return op.kind == BlockOp::Kind::load && program_.stage(&op - &program_.ops[0]) == Stage::loop;
  });
  if (tensor_maps_.empty() || !staged_fetch_.empty() || !direct_fetch_.empty())
    return Status(ErrorCode::UNSUPPORTED,
                  std::string("a producer warp brings all tiles of a loop by TMA, which on ") +
                      target_.name + " can bring " + std::to_string(tensor_maps_.size()) + " of these " +
                      std::to_string(loads) +
                      " (tma=1; rows dense and of whole 16 bytes, edges only where the tensor ends)");
  return {};
}

// The whole life of the producer. It may end before what it asked for has landed, and before the others: the
// block, whose memory TMA writes, ends with the last of them.
Body BlockEmitter::producer_body(const BlockPlan& plan) const {
  if (!schedule_.producer) return {};
  const Expr iteration(iteration_number_);
  ir::WarpRole producer{"producer", schedule_.workers() / 32, {}};
  Builder(producer.body).when(equal(lane(), 0), [&](Builder& one) {
    one.rolled(iteration_number_, 0, kernel_.trip_count, [&](Builder& each) {
      // Before its first phase has ended an mbarrier takes a wait for the phase before that.
      each.emit(Instr::mbarrier_wait, {ir::address(empty_, stage_number(iteration)), phase(iteration) ^ 1});
      for (const Body& part : {stage_tiles(plan), iteration_, tma_request()}) each.add(part);
    });
  });
  return {std::move(producer)};
}

// Whether wgmma groups of an iteration may be outstanding when the next one begins: they read nothing but the
// ring, and nobody looks at what they sum before the end.
bool BlockEmitter::keeps_groups_outstanding() const {
  return !outstanding_.empty() && std::all_of(plans_.begin(), plans_.end(), [&](const auto& each) {
    const auto& [value, plan] = each;
    if (!plan.wgmma || program_.stage(value) != Stage::loop) return true;
    const BlockOp& user = program_.op(program_.users[static_cast<size_t>(value)][0]);
    return plan.shared[0] && plan.shared[1] && !plan.cooperative[0] && !plan.cooperative[1] &&
           user.kind == BlockOp::Kind::accumulate && user.combine == Combine::sum;
  });
}

// The loop of those that compute. A stage is given back when the iteration has read it; where products are
// outstanding, an iteration later.
Body BlockEmitter::consumer_loop(const BlockPlan& plan, Body work) const {
  const bool go_on = keeps_groups_outstanding();
  const Expr iteration(iteration_number_);
  Body out;
  Builder(out).rolled(iteration_number_, 0, kernel_.trip_count, [&](Builder& to) {
    to.add(stage_tiles(plan));
    to.add(iteration_);
    if (begins_with_barrier(Stage::loop)) to.add(barrier());
    to.add(tma_wait());
    to.add(std::move(work));
    if (go_on)
      to.emit(Instr::wgmma_wait, {}, {static_cast<int>(outstanding_.size())});
    else
      to.add(wgmma_wait(outstanding_));
    to.emit(Instr::warp_barrier);
    const Expr done = go_on ? iteration - 1 : iteration, one_lane = equal(lane(), 0);
    to.when(go_on ? both(less(0, iteration), one_lane) : one_lane, [&](Builder& one) {
      one.emit(Instr::mbarrier_arrive, {ir::address(empty_, stage_number(done))});
    });
  });
  if (go_on) Builder(out).add(wgmma_wait(outstanding_));
  return out;
}

}  // namespace quern
