// The loop of threads that all do the same, with loads ahead of their use: tiles come into the stages of a
// ring, or into registers for the next iteration. Each fetch stands once in the loop, which begins before the
// first iteration or goes on after the last: compilers do not inline what stands twice, and what is not
// inlined lives in memory.
#include "core/kernel/passes/passes.h"
#include "core/kernel/passes/tile_loop.h"

namespace quern::ir {

namespace {

// The tiles of the first iterations, before what stands in front of the loop; of inputs before the kernel in front has ended.
void fetch_first(Draft& draft, int ahead) {
  const TileLoop& loop = *draft.loop;
  Builder to(draft.prologue);
  const bool early = draft.waits_for_previous && has_inputs(draft);
  if (early) to.add(fetch_inputs(draft, ahead));
  if (draft.waits_for_previous) wait_for_previous(draft, to);
  const bool all_there = min_of(loop.trip_count, ahead).is_number(ahead);
  to.rolled(loop.iteration, 0, ahead, [&](Builder& each) {
    each.when(all_there ? ir::truth(true) : less(loop.iteration, loop.trip_count), [&](Builder& fetch) {
      fetch.add(fetch_tiles(draft, early ? std::optional(ir::truth(false)) : std::nullopt));
    });
    commit_copies(draft, each);  // a group for each iteration, as in the loop
  });
}

// As many iterations ahead as there are stages but one; inputs of these before the kernel in front has ended.
void staged(Draft& draft, Builder& out) {
  const TileLoop& loop = *draft.loop;
  const int ahead = draft.ring.stages - 1;
  if (draft.fetches_first) fetch_first(draft, ahead);
  const bool early = fetches_ahead(draft);
  if (early) {
    out.add(fetch_inputs(draft, ahead));
    wait_for_previous(draft, out);
  }
  const Symbol step = make_variable("step", Scalar::i32);
  out.rolled(step, draft.fetches_first ? 0 : -ahead, loop.trip_count, [&](Builder& to) {
    wait_for_copies(draft, to, ahead - 1);
    to.when(less(Expr(step) + ahead, loop.trip_count), [&](Builder& fetch) {
      fetch.let(loop.iteration, Expr(step) + ahead);
      fetch.add(fetch_tiles(draft, early ? std::optional(less_equal(0, step)) : std::nullopt));
    });
    commit_copies(draft, to);
    if (!draft.fetches_first) to.when(less(step, 0), [](Builder& early) { early.add(Continue{}); });
    to.let(loop.iteration, step);
    for (const Body& part :
         {stage_tiles(draft), loop.names, loop.loads, tma_wait(draft), draft.section(Stage::loop).body})
      to.add(part);
  });
  if (!draft.ring.cp_async.empty()) out.emit(Instr::cp_async_wait, {}, {0});
}

void prefetched(const TileLoop& loop, const Body& work, Builder& out) {
  const Symbol step = make_variable("step", Scalar::i32);
  out.rolled(step, 0, loop.trip_count + 1, [&](Builder& each) {
    each.when(less(step, loop.trip_count), [&](Builder& fetch) {
      fetch.let(loop.iteration, step);
      fetch.add(loop.names);
      fetch.add(loop.loads);
    });
    each.when(less(0, step), [&](Builder& now) {
      now.let(loop.iteration, Expr(step) - 1);
      now.add(loop.names);
      now.add(work);
    });
    each.add(loop.take);
  });
}

void plain(const TileLoop& loop, const Body& work, Builder& out) {
  out.rolled(loop.iteration, 0, loop.trip_count, [&](Builder& each) {
    for (const Body& part : {loop.names, loop.loads, work}) each.add(part);
  });
}

}  // namespace

Status stage_loads(Draft& draft, const PassContext&) {
  if (!draft.loop) return {};
  const TileLoop& loop = *draft.loop;
  Draft::Section& section = draft.section(Stage::loop);
  Body out = in_front_of_loop(draft);
  Builder to(out);
  if (!draft.ring.tiles.empty()) {
    staged(draft, to);
  } else {
    if (section.begins_with_barrier) section.body.insert(section.body.begin(), draft.barrier());
    if (loop.prefetch && !loop.loads.empty())
      prefetched(loop, section.body, to);
    else
      plain(loop, section.body, to);
  }
  draft.loop_body = std::move(out);
  draft.loop.reset();
  section.body.clear();
  return {};
}

}  // namespace quern::ir
