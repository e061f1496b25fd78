// A product that is software-pipelined: issued an iteration later. Where the loop makes a product, computes
// something from it, and sums the product of that with a tile that all warps make together (attention with
// normed values), the warps would have to wait for each other before the second product. So it is issued in
// the next iteration, behind the first product of that: the barrier that every iteration has is between them,
// and tensor cores make it while the threads compute.
//
// For the iteration before the first there are zeros. The barrier of an iteration stands behind what the
// threads compute, in front of the wait for the product of the iteration before: compilers move waits to the
// front of what has no barriers or branches. Stages have been read by then, and are filled again.
#include "core/kernel/passes/passes.h"
#include "core/kernel/passes/tile_loop.h"

namespace quern::ir {

namespace {

// The tile that this iteration makes, and that of the iteration before, one after the other.
Body name_tiles(const TileLoop& loop) {
  const PipelinedProduct& product = *loop.pipelined;
  Body body;
  Builder to(body);
  auto tile = [&](const Symbol& memory, int iterations) {
    const int64_t elements = product.tile_bytes / bytes_of(memory->type);
    to.let(memory, address(product.buffer, (Expr(loop.iteration) + iterations) % product.copies * elements));
  };
  tile(product.tile, 0);
  tile(product.previous_tile, product.copies - 1);
  return body;
}

void write_zeros(const Draft& draft, Builder& to) {
  const PipelinedProduct& product = *draft.loop->pipelined;
  const Symbol v = make_vector("v", Scalar::u32, 4);
  to.declare(v, true);
  const int64_t vectors = product.tile_bytes / 16;
  to.unrolled("c", (vectors + draft.workers - 1) / draft.workers, [&](Builder& each, const Expr& c) {
    const Expr i = each.named("i", thread_index() + c * draft.workers);
    each.when(vectors % draft.workers == 0 ? truth(true) : less(i, vectors), [&](Builder& there) {
      there.emit(Instr::store_shared, {address(product.previous_tile, i * 8), v}, {Scalar::u32, 4});
    });
  });
  to.emit(Instr::fence_async);
}

void iterations(const Draft& draft, Builder& to) {
  const TileLoop& loop = *draft.loop;
  const int ahead = draft.ring.stages;
  const Symbol step = make_variable("step", Scalar::i32);
  to.rolled(step, 0, loop.trip_count, [&](Builder& each) {
    each.let(loop.iteration, step);
    for (const Body& part : {stage_tiles(draft), loop.names, loop.loads, name_tiles(loop), tma_wait(draft),
                             draft.section(Stage::loop).body})
      each.add(part);
    wait_for_copies(draft, each, ahead - 2);
    each.when(less(Expr(step) + ahead, loop.trip_count), [&](Builder& more) {
      more.let(loop.iteration, Expr(step) + ahead);
      more.add(fetch_tiles(draft));
    });
    commit_copies(draft, each);
    each.add(loop.pipelined->rest);
  });
}

}  // namespace

Status pipeline_products(Draft& draft, const PassContext&) {
  if (!draft.loop || !draft.loop->pipelined) return {};
  const TileLoop& loop = *draft.loop;
  Body out = in_front_of_loop(draft);
  Builder to(out);
  to.emit(Instr::block_barrier);
  to.scope([&](Builder& first) {
    first.let(loop.iteration, 0);
    first.add(name_tiles(loop));
    write_zeros(draft, first);
  });
  to.rolled(loop.iteration, 0, draft.ring.stages, [&](Builder& first) {
    first.add(fetch_tiles(draft));
    commit_copies(draft, first);
  });
  wait_for_copies(draft, to, draft.ring.stages - 1);
  iterations(draft, to);
  to.scope([&](Builder& last) {
    last.let(loop.iteration, loop.trip_count);
    last.add(name_tiles(loop));
    last.emit(Instr::wgmma_fence);
    last.add(loop.pipelined->group);
    last.add(wait_for_products(loop.pipelined->sums));
  });
  if (!draft.ring.cp_async.empty()) to.emit(Instr::cp_async_wait, {}, {0});
  draft.loop_body = std::move(out);
  draft.loop.reset();
  draft.section(Stage::loop).body.clear();
  return {};
}

}  // namespace quern::ir
