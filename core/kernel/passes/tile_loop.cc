#include "core/kernel/passes/tile_loop.h"

#include "core/kernel/effects.h"

namespace quern::ir {

Body wait_for_products(const std::vector<Symbol>& sums, int pending) {
  Body body;
  Builder to(body);
  if (!sums.empty()) to.emit(Instr::wgmma_wait, {}, {pending});
  for (const Symbol& each : sums) to.emit(Instr::wgmma_landed, {each});
  return body;
}

Expr iteration_of_all(const Draft& draft, const Expr& iteration) {
  return draft.turns ? Expr(draft.turns->turn) * draft.loop->trip_count + iteration : iteration;
}

Body stage_tiles(const Draft& draft) {
  const TileRing& ring = draft.ring;
  const int64_t bytes = ring.stage_bytes();
  Body body;
  Builder to(body);
  to.let(ring.stage,
         address(draft.memory,
                 stage_number(ring, iteration_of_all(draft, draft.loop->iteration)) * bytes + ring.offset));
  int64_t offset = 0;
  for (const TileRing::Tile& tile : ring.tiles) {
    to.let(tile.memory, address(ring.stage, offset));
    offset += tile.bytes;
  }
  return body;
}

namespace {

void name_arriving(const Draft& draft, Builder& to) {
  const TileRing& ring = draft.ring;
  to.let(ring.arriving,
         address(ring.full, stage_number(ring, iteration_of_all(draft, draft.loop->iteration))));
}

// The first that is asked for in an iteration: how much will come.
void ask_for_inputs(const TileRing& ring, Builder& to) {
  to.emit(Instr::mbarrier_arrive_expect, {Expr(ring.arriving), ring.tma_bytes});
  to.add(ring.tma.of_inputs);
}

void when_any(const std::optional<Expr>& condition, Builder& to, const std::function<void(Builder&)>& write) {
  if (!condition)
    write(to);
  else
    to.when(*condition, write);
}

bool touches_memory(const Body& body) {
  bool found = false;
  visit_effects(body, [&](const Effect& effect) { found |= effect.symbol->space != Space::variable; });
  return found;
}

}  // namespace

Body tma_request(const Draft& draft, const std::optional<Expr>& later) {
  Body body;
  Builder to(body);
  name_arriving(draft, to);
  when_any(later, to, [&](Builder& there) { ask_for_inputs(draft.ring, there); });
  to.add(draft.ring.tma.others);
  return body;
}

Body fetch_tiles(const Draft& draft, const std::optional<Expr>& later) {
  const TileRing& ring = draft.ring;
  Body body;
  Builder to(body);
  for (const Body& part : {stage_tiles(draft), draft.loop->names}) to.add(part);
  if (!ring.cp_async.of_inputs.empty())
    when_any(later, to, [&](Builder& there) { there.add(ring.cp_async.of_inputs); });
  to.add(ring.cp_async.others);
  if (!ring.maps.empty())
    to.when(equal(thread_index(), 0), [&](Builder& first) { first.add(tma_request(draft, later)); });
  return body;
}

// A producer has nothing to do with what the others do in front of the loop.
bool fetches_ahead(const Draft& draft) {
  return draft.waits_for_previous && !draft.turns && !touches_memory(draft.prologue) &&
         (draft.producer || !touches_memory(draft.section(Stage::before).body)) && has_inputs(draft);
}

bool has_inputs(const Draft& draft) {
  return !draft.ring.cp_async.of_inputs.empty() || !draft.ring.tma.of_inputs.empty();
}

Body fetch_inputs(const Draft& draft, const Expr& count) {
  const TileRing& ring = draft.ring;
  Body body;
  Builder(body).rolled(draft.loop->iteration, 0, min_of(draft.loop->trip_count, count), [&](Builder& each) {
    for (const Body& part : {stage_tiles(draft), draft.loop->names, ring.cp_async.of_inputs}) each.add(part);
    if (ring.maps.empty()) return;
    when_any(draft.producer ? std::nullopt : std::optional(equal(thread_index(), 0)), each,
             [&](Builder& one) {
               name_arriving(draft, one);
               ask_for_inputs(ring, one);
             });
  });
  if (!ring.cp_async.of_inputs.empty()) Builder(body).emit(Instr::cp_async_commit);
  return body;
}

void wait_for_previous(Draft& draft, Builder& to) {
  to.emit(Instr::grid_wait);
  if (draft.launches_dependents == LaunchesDependents::at_once) {
    to.emit(Instr::grid_launch_dependents);
    draft.launches_dependents = LaunchesDependents::never;
  }
  draft.waits_for_previous = false;
  draft.waits_late = true;
}

Body tma_wait(const Draft& draft) {
  const TileRing& ring = draft.ring;
  const Expr iteration = iteration_of_all(draft, draft.loop->iteration);
  Body body;
  if (!ring.maps.empty())
    Builder(body).emit(Instr::mbarrier_wait,
                       {address(ring.full, stage_number(ring, iteration)), phase(ring, iteration)});
  return body;
}

void commit_copies(const Draft& draft, Builder& to) {
  if (!draft.ring.cp_async.empty()) to.emit(Instr::cp_async_commit);
}

void wait_for_copies(const Draft& draft, Builder& to, int pending) {
  if (!draft.ring.cp_async.empty()) to.emit(Instr::cp_async_wait, {}, {pending});
  if (draft.ring.cp_async_for_wgmma) to.emit(Instr::fence_async);
  to.emit(Instr::block_barrier);
}

Expr gives_back(const Draft& draft) {
  const int blocks = draft.schedule.multicast_blocks();
  return blocks > 1 ? less(draft.lane, blocks) : equal(draft.lane, 0);
}

void give_back(const Draft& draft, const Expr& iteration, const Expr& condition, Builder& to) {
  const Expr empty = address(draft.ring.empty, stage_number(draft.ring, iteration));
  to.when(condition, [&](Builder& some) {
    if (draft.schedule.multicast_blocks() > 1)
      some.emit(Instr::mbarrier_arrive_at, {empty, Expr(draft.lane)});
    else
      some.emit(Instr::mbarrier_arrive, {empty});
  });
}

// TMA may get memory that was written before the loop.
Body in_front_of_loop(const Draft& draft) {
  Body body = draft.loop->declared;
  if (!draft.ring.maps.empty() && !draft.buffers.empty()) Builder(body).emit(Instr::fence_async);
  return body;
}

}  // namespace quern::ir
