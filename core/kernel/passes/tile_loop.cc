#include "core/kernel/passes/tile_loop.h"

#include <algorithm>

#include "core/kernel/effects.h"
#include "core/kernel/replace.h"

namespace quern::ir {

Body wait_for_products(const std::vector<Symbol>& sums, int pending) {
  Body body;
  Builder to(body);
  if (!sums.empty()) to.emit(Instr::wgmma_wait, {}, {pending});
  for (const Symbol& each : sums) to.emit(Instr::wgmma_landed, {each});
  return body;
}

Expr iteration_of_all(const Draft& draft, const Expr& iteration) {
  if (!draft.turns) return iteration;
  return (draft.turns->visited ? Expr(draft.turns->visited)
                               : Expr(draft.turns->turn) * draft.loop->trip_count) +
         iteration;
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
    to.let(tile.memory, tile.over ? address(tile.over, 0) : address(ring.stage, offset));
    offset += tile.bytes;
  }
  return body;
}

namespace {

// The mbarrier of an arrival in this iteration.
Expr barrier_of(const Draft& draft, const Arrival& arrival) {
  const TileRing& ring = draft.ring;
  const auto count = static_cast<int64_t>(ring.arrivals.size());
  const Expr stage = stage_number(ring, iteration_of_all(draft, draft.loop->iteration));
  return address(ring.full, stage * count + (&arrival - ring.arrivals.data()));
}

// Whether one of the tiles is touched.
bool touches(const Body& body, const std::vector<Symbol>& tiles) {
  bool found = false;
  visit_effects(body, [&](const Effect& effect) {
    found |= std::any_of(tiles.begin(), tiles.end(),
                         [&](const Symbol& tile) { return effect.through == tile.get(); });
  });
  return found;
}

// The first that is asked for of an arrival: how much will come.
void ask_for_inputs(const Arrival& arrival, Builder& to) {
  to.emit(Instr::mbarrier_arrive_expect, {Expr(arrival.barrier), arrival.bytes});
  to.add(arrival.copies.of_inputs);
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
  for (const Arrival& arrival : draft.ring.arrivals) {
    const bool has_inputs = !arrival.copies.of_inputs.empty();
    if (arrival.is_made()) continue;
    to.let(arrival.barrier, barrier_of(draft, arrival));
    when_any(has_inputs ? later : std::nullopt, to, [&](Builder& there) { ask_for_inputs(arrival, there); });
    to.add(arrival.copies.others);
  }
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
  return !draft.ring.cp_async.of_inputs.empty() || draft.ring.asks_tma_for(&Copies::of_inputs);
}

Body fetch_inputs(const Draft& draft, const Expr& count) {
  const TileRing& ring = draft.ring;
  Body body;
  Builder(body).rolled(draft.loop->iteration, 0, min_of(draft.loop->trip_count, count), [&](Builder& each) {
    for (const Body& part : {stage_tiles(draft), draft.loop->names, ring.cp_async.of_inputs}) each.add(part);
    if (ring.maps.empty()) return;
    when_any(draft.producer ? std::nullopt : std::optional(equal(thread_index(), 0)), each,
             [&](Builder& one) {
               for (const Arrival& arrival : ring.arrivals) {
                 if (arrival.copies.of_inputs.empty()) continue;
                 one.let(arrival.barrier, barrier_of(draft, arrival));
                 ask_for_inputs(arrival, one);
               }
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

namespace {

void wait_for(const Draft& draft, const Arrival& arrival, Body& out) {
  const Expr iteration = iteration_of_all(draft, draft.loop->iteration);
  Builder(out).emit(Instr::mbarrier_wait, {barrier_of(draft, arrival), phase(draft.ring, iteration)});
}

}  // namespace

Body with_own_numbers(const Draft& draft, int first_warp, const Body& work) {
  const Symbol own = make_variable("own_warp", Scalar::i32);
  Body body;
  Builder to(body);
  to.let(own, Expr(draft.warp) - first_warp);
  to.add(renamed(work, draft.warp, own));
  return body;
}

Body transform_tile(const Draft& draft, const Arrival& made) {
  Body body;
  for (const Arrival& arrival : draft.ring.arrivals)
    if (!arrival.is_made() && touches(made.transform, arrival.tiles)) wait_for(draft, arrival, body);
  Builder to(body);
  to.add(made.transform);
  to.emit(Instr::warp_barrier);
  to.when(equal(draft.lane, 0),
          [&](Builder& one) { one.emit(Instr::mbarrier_arrive, {barrier_of(draft, made)}); });
  return body;
}

Body tma_wait(const Draft& draft) {
  Body body;
  for (const Arrival& arrival : draft.ring.arrivals) wait_for(draft, arrival, body);
  return body;
}

Body part_of_iteration(const Draft& draft, const Body& part, const Body& before) {
  Body waits;
  bool reads = false;
  for (const Arrival& arrival : draft.ring.arrivals) {
    if (!touches(part, arrival.tiles)) continue;
    reads = true;
    if (!touches(before, arrival.tiles)) wait_for(draft, arrival, waits);
  }
  Body body;
  Builder to(body);
  if (reads) to.add(stage_tiles(draft));
  for (const Body& each : {draft.loop->names, waits, part}) to.add(each);
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

void give_back_once(const Draft& draft, Builder& to) {
  if (!draft.turns || draft.ring.once_bytes == 0) return;
  to.emit(Instr::warp_barrier);
  to.when(equal(draft.lane, 0),
          [&](Builder& one) { one.emit(Instr::mbarrier_arrive, {draft.ring.once_read}); });
}

// TMA may get memory that was written before the loop.
Body in_front_of_loop(const Draft& draft) {
  Body body = draft.loop->declared;
  if (!draft.ring.maps.empty() && !draft.buffers.empty()) Builder(body).emit(Instr::fence_async);
  return body;
}

}  // namespace quern::ir
