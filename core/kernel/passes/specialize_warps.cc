// A producer warp: one thread asks TMA for the tiles of all iterations, while the other warps compute. Two
// mbarriers guard each stage: `full`, when the bytes of an iteration are there, and `empty`, when every warp
// has read them. So no iteration has a barrier of all threads, and a slow warp stops the others only when it
// is behind by the whole ring.
//
// With `transform` there is a third role between them: warps that make operands of wgmma of tiles that have come, and leave them in
// the same stage, where those who compute wait for them at another `full`.
#include <algorithm>

#include "core/base/status.h"
#include "core/kernel/effects.h"
#include "core/kernel/passes/passes.h"
#include "core/kernel/passes/tile_loop.h"

namespace quern::ir {

namespace {

// What it asks for in front of a tile's loop, when the tile before needs no more of what lies there.
void ask_once(const Draft& draft, Builder& to) {
  const TileRing& ring = draft.ring;
  if (ring.once_bytes == 0) return;
  if (fetches_ahead(draft) && !ring.once.others.empty()) to.emit(Instr::grid_wait);
  if (draft.turns) to.emit(Instr::mbarrier_wait, {ring.once_read, (Expr(draft.turns->turn) & 1) ^ 1});
  to.emit(Instr::mbarrier_arrive_expect, {ring.arrived_once, ring.once_bytes});
  to.add(ring.once.all());
}

// What the producer asks for. Inputs of the first iterations, as many as the ring has stages, need not wait
// for the kernel in front; if all tiles are of inputs, none needs to.
void ask_for_tiles(const Draft& draft, Builder& to) {
  const TileRing& ring = draft.ring;
  const Symbol& number = draft.loop->iteration;
  const Expr iteration = iteration_of_all(draft, number);
  const bool ahead = fetches_ahead(draft) && ring.asks_tma_for(&Copies::others);
  if (ahead) {
    to.add(fetch_inputs(draft, ring.stages));
    to.emit(Instr::grid_wait);
  }
  to.rolled(number, 0, draft.loop->trip_count, [&](Builder& each) {
    // Before its first phase has ended an mbarrier takes a wait for the phase before that.
    each.emit(Instr::mbarrier_wait,
              {address(ring.empty, stage_number(ring, iteration)), phase(ring, iteration) ^ 1});
    for (const Body& part : {stage_tiles(draft), draft.loop->names}) each.add(part);
    each.add(tma_request(draft, ahead ? std::optional(less_equal(ring.stages, number)) : std::nullopt));
  });
}

// The whole life of the producer. It may end before what it asked for has landed, and before the others: the
// block, whose memory TMA writes, ends with the last of them.
WarpRole producer_role(const Draft& draft) {
  const int others = draft.groups() * draft.workers + draft.schedule.transforming();
  WarpRole producer{"producer", others / 32, {}, (draft.kernel.threads - others) / 32};
  Builder role(producer.body);
  if (draft.schedule.setmaxnreg) role.emit(Instr::setmaxnreg_dec, {}, {KernelSchedule::kProducerRegisters});
  const Expr one_thread = producer.warps == 1 ? equal(draft.lane, 0) : equal(thread_index(), others);
  auto ask = [&](Builder& attempt) {
    attempt.when(one_thread, [&](Builder& one) {
      each_turn(draft, one, [&](Builder& turn) {
        if (draft.turns) turn.add(draft.prologue);
        ask_once(draft, turn);
        ask_for_tiles(draft, turn);
      });
    });
  };
  // The producer knows nothing of what counts: it wants the first attempt, and leaves the second to the others.
  const bool tries = draft.turns && draft.turns->attempt;
  each_attempt(draft, role, tries ? less(0, draft.turns->attempt) : truth(true), ask);
  if (draft.waits_late || fetches_ahead(draft)) role.emit(Instr::grid_wait);
  return producer;
}

// As many warps as compute, with numbers as theirs, make operands of what the producer brings. A stage is theirs when its tiles have
// come, which is not before all who compute have given it back; so that they need not give back anything.
WarpRole transform_role(const Draft& draft) {
  WarpRole role{"transform", draft.workers / 32, {}, draft.schedule.transforming() / 32};
  Body work;
  Builder to(work);
  if (draft.waits_late || fetches_ahead(draft)) to.emit(Instr::grid_wait);
  each_turn(draft, to, [&](Builder& turn) {
    if (draft.turns) turn.add(draft.prologue);
    for (const Arrival& arrival : draft.ring.arrivals) turn.add(arrival.transform_once);
    turn.rolled(draft.loop->iteration, 0, draft.loop->trip_count, [&](Builder& each) {
      for (const Body& part : {stage_tiles(draft), draft.loop->names}) each.add(part);
      for (const Arrival& arrival : draft.ring.arrivals)
        if (arrival.is_made()) each.add(transform_tile(draft, arrival));
    });
  });
  Builder own(role.body);
  own.emit(Instr::setmaxnreg_dec, {}, {draft.schedule.transform_registers()});
  own.add(with_own_numbers(draft, role.first_warp, work));
  return role;
}

// Of two groups one waits at `full` when the other has gone through its loop: by its parity a phase cannot be told from the
// one before the last. Before its first phase has ended an mbarrier takes a wait for the phase before that.
void wait_for_turn(const TileTurns& turns, Body& out) {
  const Expr round = Expr(turns.turn) / turns.groups, group(turns.group);
  Builder(out).emit(Instr::mbarrier_wait, {address(turns.may_begin, group), (round ^ group ^ 1) & 1});
}
void end_turn(const Draft& draft, Body& out) {
  const TileTurns& turns = *draft.turns;
  Builder(out).when(equal(draft.lane, 0), [&](Builder& one) {
    one.emit(Instr::mbarrier_arrive, {address(turns.may_begin, 1 - Expr(turns.group))});
  });
}

// The loop of those that compute. A stage is given back when the iteration has read it; where products are
// outstanding, an iteration later.
Body consumer_loop(const Draft& draft) {
  const TileLoop& loop = *draft.loop;
  const Draft::Section& section = draft.section(Stage::loop);
  const bool go_on = loop.groups_stay_outstanding;
  const Expr iteration(loop.iteration), all = iteration_of_all(draft, iteration), lanes = gives_back(draft);
  Body out = loop.declared;
  if (draft.groups() > 1) wait_for_turn(*draft.turns, out);
  auto iterations = [&](const Expr& begin, const Expr& end, const Body& work) {
    Builder(out).rolled(loop.iteration, begin, end, [&](Builder& to) {
      to.add(stage_tiles(draft));
      to.add(loop.names);
      to.add(loop.loads);
      if (section.begins_with_barrier) to.add(draft.barrier());
      to.add(tma_wait(draft));
      to.add(work);
      to.emit(Instr::warp_barrier);
      give_back(draft, go_on ? all - 1 : all, go_on ? both(less(0, iteration), lanes) : lanes, to);
    });
  };
  if (loop.first) iterations(0, loop.first->count, loop.first->body);
  iterations(loop.first ? loop.first->count : 0, loop.trip_count, section.body);
  if (draft.groups() > 1) end_turn(draft, out);
  Builder to(out);
  if (go_on) to.add(wait_for_products(loop.outstanding));
  give_back_once(draft, to);
  if (go_on && draft.turns) {  // the next tile needs all stages
    to.emit(Instr::warp_barrier);
    give_back(draft, iteration_of_all(draft, loop.trip_count - 1), lanes, to);
  }
  to.add(loop.behind);
  return out;
}

// Whether threads that compute meet each other.
bool meets(const Draft& draft) {
  return std::any_of(draft.sections.begin(), draft.sections.end(), [](const Draft::Section& section) {
    return section.begins_with_barrier || has_barriers(section.body);
  });
}

}  // namespace

Status specialize_warps(Draft& draft, const PassContext&) {
  if (!draft.producer || !draft.loop) return {};
  check(!draft.ring.maps.empty() && draft.ring.cp_async.empty(),
        "a producer warp brings the tiles of a ring by TMA");
  if (draft.groups() > 1 && (draft.loop->masked || meets(draft)))
    return Status(ErrorCode::UNSUPPORTED,
                  "groups that take tiles in turns (pingpong) have no barriers of their own");
  draft.roles = {producer_role(draft)};
  if (draft.schedule.transform) draft.roles.push_back(transform_role(draft));
  if (draft.schedule.setmaxnreg)
    Builder(draft.roles).emit(Instr::setmaxnreg_inc, {}, {draft.schedule.most_registers()});
  if (fetches_ahead(draft)) {
    Builder after(draft.roles);
    wait_for_previous(draft, after);
  }
  if (draft.schedule.overlap) return {};
  draft.loop_body = consumer_loop(draft);
  draft.loop.reset();
  draft.section(Stage::loop).body.clear();
  return {};
}

}  // namespace quern::ir
