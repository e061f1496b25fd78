#include "core/kernel/passes/tile_loop.h"

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

Body tma_request(const Draft& draft) {
  const TileRing& ring = draft.ring;
  Body body;
  Builder to(body);
  to.let(ring.arriving,
         address(ring.full, stage_number(ring, iteration_of_all(draft, draft.loop->iteration))));
  to.emit(Instr::mbarrier_arrive_expect, {Expr(ring.arriving), ring.tma_bytes});
  to.add(ring.tma);
  return body;
}

Body fetch_tiles(const Draft& draft) {
  Body body;
  Builder to(body);
  for (const Body& part : {stage_tiles(draft), draft.loop->names, draft.ring.cp_async}) to.add(part);
  if (!draft.ring.maps.empty())
    to.when(equal(thread_index(), 0), [&](Builder& first) { first.add(tma_request(draft)); });
  return body;
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

void give_back(const Draft& draft, const Expr& iteration, const Expr& condition, Builder& to) {
  to.when(condition, [&](Builder& one) {
    one.emit(Instr::mbarrier_arrive, {address(draft.ring.empty, stage_number(draft.ring, iteration))});
  });
}

// TMA may get memory that was written before the loop.
Body in_front_of_loop(const Draft& draft) {
  Body body = draft.loop->declared;
  if (!draft.ring.maps.empty() && !draft.buffers.empty()) Builder(body).emit(Instr::fence_async);
  return body;
}

}  // namespace quern::ir
