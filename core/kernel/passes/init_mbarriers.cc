// The mbarriers of a ring that TMA fills: `full`, when the bytes of an iteration are there, and with a
// producer warp `empty`, when every warp has read them (by multicast: of both blocks). One thread initialises
// them before any other may use them.
#include "core/base/status.h"
#include "core/kernel/builder.h"
#include "core/kernel/passes/passes.h"

namespace quern::ir {

namespace {

// Of each phase: the producer's, or of all warps that make tiles.
int arrivals_at(const Draft& draft, int number) {
  const Arrival& arrival = draft.ring.arrivals[static_cast<size_t>(number)];
  return arrival.is_made() ? draft.schedule.transforming() / 32 : 1;
}

}  // namespace

Status init_mbarriers(Draft& draft, const PassContext&) {
  const TileRing& ring = draft.ring;
  const int blocks = draft.schedule.multicast_blocks();
  if (ring.maps.empty()) return {};
  Builder to(draft.barrier_setup);
  to.let(ring.full, address(draft.memory, ring.barriers_at));
  const auto arrivals = static_cast<int>(ring.arrivals.size());
  if (draft.producer) to.let(ring.empty, address(ring.full, ring.stages * arrivals));
  const bool in_turns = draft.groups() > 1;
  if (in_turns) to.let(draft.turns->may_begin, address(ring.empty, ring.stages));
  const bool once = ring.once_bytes > 0;
  check(!once || (draft.producer && !in_turns), "a producer of one group brings tiles once");
  if (once) to.let(ring.arrived_once, address(ring.empty, ring.stages));
  const bool in_each_turn = once && draft.turns;
  if (in_each_turn) to.let(ring.once_read, address(ring.arrived_once, 1));
  to.when(equal(thread_index(), 0), [&](Builder& first) {
    for (const Symbol& map : ring.maps) first.emit(Instr::tma_prefetch, {map});
    for (int i = 0; i < ring.stages; ++i) {
      for (int each = 0; each < arrivals; ++each)
        first.emit(Instr::mbarrier_init, {address(ring.full, i * arrivals + each), arrivals_at(draft, each)});
      if (draft.producer)
        first.emit(Instr::mbarrier_init, {address(ring.empty, i), draft.workers / 32 * blocks});
    }
    for (int group = 0; in_turns && group < draft.groups(); ++group)
      first.emit(Instr::mbarrier_init, {address(draft.turns->may_begin, group), draft.workers / 32});
    if (once) first.emit(Instr::mbarrier_init, {ring.arrived_once, 1});
    if (in_each_turn) first.emit(Instr::mbarrier_init, {ring.once_read, draft.workers / 32});
    first.emit(Instr::mbarrier_init_fence);
  });
  // Before the other block has made its own, nothing may be sent there.
  to.emit(blocks > 1 ? Instr::cluster_barrier : Instr::block_barrier);
  return {};
}

}  // namespace quern::ir
