// Each pass by itself: a small draft with what it requires, and what it makes of that.
#include "core/kernel/passes/passes.h"

#include "core/kernel/builder.h"
#include "core/kernel/print_ir.h"
#include "tests/support/test.h"

namespace quern::ir {
namespace {

const Target& hopper() { return *find_target("sm_90a").value(); }

// Runs one pass, greedily.
void run(Draft& draft, const char* name, const Target& target = hopper()) {
  Chooser chooser({}, nullptr);
  for (const Pass& pass : passes())
    if (pass.name == std::string(name)) return assert_ok(pass.run(draft, {target, chooser}));
  fail_test("there is such a pass");
}

// 64 threads: of what a draft is made.
struct Names {
  Symbol x = make_memory("x", Space::global, Scalar::f32),
         y = make_memory("y", Space::global, Scalar::f32, true), lane = make_variable("lane", Scalar::i32),
         memory = make_memory("shared", Space::shared, Scalar::byte),
         stage = make_pointer("stage", memory, Scalar::byte), tile = make_pointer("tile", stage, Scalar::f32),
         iteration = make_variable("i", Scalar::i32), sum = make_registers("sum", Scalar::f32, 1),
         full = make_memory("full", Space::shared, Scalar::mbarrier),
         empty = make_memory("empty", Space::shared, Scalar::mbarrier),
         arriving = make_pointer("arriving", full, Scalar::mbarrier),
         map = make_memory("map0", Space::tensor_map, Scalar::tensor_map);
};

Draft draft_of(const Names& names) {
  Draft draft;
  draft.kernel.name = "sums";
  draft.kernel.threads = 64;
  draft.workers = 64;
  draft.lane = names.lane;
  draft.memory = names.memory;
  return draft;
}

SharedBuffer buffer(const std::string& name, int64_t bytes, SharedBuffer::Use use = {}) {
  return {make_memory(name, Space::shared, Scalar::f32), bytes, 16, use};
}

template <class Write>
Body body(const Write& write) {
  Body out;
  Builder to(out);
  write(to);
  return out;
}

Body put(const SharedBuffer& buffer, const Symbol& value) {
  return body([&](Builder& to) { to.assign(element(buffer.symbol, thread_index()), element(value, 0)); });
}
Body get(const SharedBuffer& buffer, const Symbol& value) {
  return body([&](Builder& to) { to.assign(element(value, 0), element(buffer.symbol, thread_index() ^ 1)); });
}
// sum = sum + tile[63 - thread].
Body add_tile(const Names& names) {
  return body([&](Builder& to) {
    to.assign(element(names.sum, 0), element(names.sum, 0) + element(names.tile, Expr(63) - thread_index()));
  });
}

// A loop of 8 iterations over tiles of 64 numbers.
TileLoop loop_of(const Names& names) {
  TileLoop loop;
  loop.iteration = names.iteration;
  loop.trip_count = 8;
  loop.declared = body([&](Builder& to) { to.declare(names.sum, true); });
  return loop;
}

void add_ring(Draft& draft, const Names& names, bool tma) {
  TileRing& ring = draft.ring;
  ring.stage = names.stage;
  ring.stages = 2;
  ring.tiles = {{names.tile, 256}};
  ring.full = names.full;
  ring.empty = names.empty;
  if (tma) {
    ring.maps = {names.map};
    ring.arrivals = {{names.arriving, {}, 256, {names.tile}}};
    Builder(ring.arrivals[0].copies.others)
        .emit(Instr::tma_load,
              {address(names.tile, 0), Expr(names.map), Expr(names.arriving), 0, Expr(names.iteration) * 64},
              {2, true});
  } else {
    Builder(ring.cp_async.others)
        .emit(Instr::cp_async,
              {address(names.tile, thread_index()),
               address(names.x, Expr(names.iteration) * 64 + thread_index())},
              {4});
  }
}

// The ring at its place.
void place_ring(Draft& draft) {
  draft.ring.offset = 0;
  draft.ring.barriers_at = 512;
}

void prints(const Draft& draft, const std::string& text) { assert_text_equal(print_ir(draft), text); }

// Two exchanges that do not depend on each other share a barrier.
void order_steps_puts_few_barriers(void**) {
  const Names names;
  Draft draft = draft_of(names);
  const Symbol a = make_registers("a", Scalar::f32, 1), b = make_registers("b", Scalar::f32, 1);
  draft.buffers = {buffer("s0", 256), buffer("s1", 256)};
  StepList& steps = draft.section(Stage::before).steps;
  steps += put(draft.buffers[0], a);
  steps += get(draft.buffers[0], a);
  steps += put(draft.buffers[1], b);
  steps += get(draft.buffers[1], b);
  run(draft, "order_steps");
  prints(draft, R"(kernel sums: 64 threads, 0 bytes of shared memory
  buffer s0: 256 bytes, exchanged, moments 0 to 1
  buffer s1: 256 bytes, exchanged, moments 0 to 1
  before the loop
    s0[int(threadIdx.x)] = a[0]
    s1[int(threadIdx.x)] = b[0]
    block_barrier  # block, orders memory
    a[0] = s0[int(threadIdx.x) ^ 1]
    b[0] = s1[int(threadIdx.x) ^ 1]
)");
  assert_int_equal(draft.costs.barriers_once, 1);
  assert_int_equal(draft.costs.listed_once, 2);
}

// Buffers that are not needed at the same moment share their place.
void plan_shared_memory_shares_places(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.buffers = {buffer("s0", 256), buffer("s1", 512), buffer("s2", 128)};
  const std::pair<int, int> moments[] = {{0, 1}, {2, 3}, {1, 2}};
  for (size_t i = 0; i < 3; ++i) std::tie(draft.buffers[i].first, draft.buffers[i].last) = moments[i];
  run(draft, "plan_shared_memory");
  prints(draft, R"(kernel sums: 64 threads, 640 bytes of shared memory
  buffer s0: 256 bytes, exchanged, moments 0 to 1, at 0
  buffer s1: 512 bytes, exchanged, moments 2 to 3, at 0
  buffer s2: 128 bytes, exchanged, moments 1 to 2, at 512
  names of shared memory
    shared: shared byte* = dynamic_shared<unsigned char>()
    s0: shared f32* = shared
    s1: shared f32* = shared
    s2: shared f32* = shared + 512
)");
  Draft large = draft_of(names);
  large.buffers = {buffer("s0", 300000)};
  large.buffers[0].first = large.buffers[0].last = 0;
  Chooser chooser({}, nullptr);
  assert_error(plan_shared_memory(large, {hopper(), chooser}), ErrorCode::UNSUPPORTED, "300000 bytes");
}

void init_mbarriers_is_done_by_one_thread(void**) {
  const Names names;
  Draft draft = draft_of(names);
  add_ring(draft, names, true);
  place_ring(draft);
  draft.producer = true;
  run(draft, "init_mbarriers");
  prints(draft, R"(kernel sums: 64 threads, 0 bytes of shared memory
  ring of 2 stages, at 0, mbarriers at 512
    tile tile: shared f32*, 256 bytes
  mbarriers
    full: shared mbarrier* = shared + 512
    empty: shared mbarrier* = full + 2
    if int(threadIdx.x) == 0
      tma_prefetch map map0
      mbarrier_init mbarrier full, 1
      mbarrier_init mbarrier empty, 2
      mbarrier_init mbarrier full + 1, 1
      mbarrier_init mbarrier empty + 1, 2
      mbarrier_init_fence  # orders proxies
    block_barrier  # block, orders memory
)");
}

// With multicast the warps of both blocks give a stage back, a lane of each for either block.
void pairs_of_blocks_share_their_mbarriers(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.schedule.multicast = {1, 2, 1};
  draft.kernel.threads = 96;
  draft.producer = true;
  draft.loop = loop_of(names);
  add_ring(draft, names, true);
  place_ring(draft);
  draft.section(Stage::loop).body = add_tile(names);
  run(draft, "init_mbarriers");
  assert_text_equal(print_ir(draft.barrier_setup), R"(full: shared mbarrier* = shared + 512
empty: shared mbarrier* = full + 2
if int(threadIdx.x) == 0
  tma_prefetch map map0
  mbarrier_init mbarrier full, 1
  mbarrier_init mbarrier empty, 4
  mbarrier_init mbarrier full + 1, 1
  mbarrier_init mbarrier empty + 1, 4
  mbarrier_init_fence  # orders proxies
cluster_barrier  # cluster, orders memory
)");
  run(draft, "specialize_warps");
  assert_text_equal(print_ir(draft.loop_body), R"(declare sum: f32[1] = 0
for i in 0 .. 8, rolled
  stage: shared byte* = shared + i % 2 * 256
  tile: shared f32* = stage
  mbarrier_wait mbarrier full + i % 2, i / 2 & 1  # orders memory
  sum[0] = sum[0] + tile[63 - int(threadIdx.x)]
  warp_barrier  # warp, orders memory
  if lane < 2
    mbarrier_arrive_at mbarrier empty + i % 2, lane  # orders memory
)");
}

void await_products_waits_at_the_end_of_an_iteration(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.loop = loop_of(names);
  draft.loop->outstanding = {names.sum};
  Builder(draft.section(Stage::loop).body).emit(Instr::wgmma_commit);
  Draft outstanding = draft;
  run(draft, "await_products");
  prints(draft, R"(kernel sums: 64 threads, 0 bytes of shared memory
  loop of i, trip count 8
  in front of it
    declare sum: f32[1] = 0
  outstanding product: sum
  an iteration
    wgmma_commit  # warpgroup
    wgmma_wait<0>  # warpgroup, orders products
    wgmma_landed update sum  # warpgroup
)");
  // At most the group of this iteration is outstanding in the next.
  outstanding.loop->groups_stay_outstanding = true;
  run(outstanding, "await_products");
  assert_text_equal(print_cuda(outstanding.section(Stage::loop).body), R"(wgmma_commit();
wgmma_wait<1>();
)");
}

// All threads decide alike whether an iteration is worked through.
void skip_masked_tiles_asks_all_threads(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.loop = loop_of(names);
  MaskedIterations masked;
  masked.possible = less(Expr(names.iteration), block_index(0));
  masked.vanishes = make_registers("vanishes", Scalar::boolean, 1);
  Builder(masked.look).assign(element(masked.vanishes, 0), truth(true));
  draft.loop->masked = masked;
  draft.section(Stage::loop).body = add_tile(names);
  Draft exchanging = draft;
  run(draft, "skip_masked_tiles");
  assert_text_equal(print_cuda(draft.section(Stage::loop).body), R"(const bool possible = i < int(blockIdx.x);
bool vanishes[1] = {};
if (possible == false) {
  vanishes[0] = true;
}
const bool busy = possible || all_agree<64>(vanishes[0]) == false;
if (busy) {
  sum[0] = sum[0] + tile[63 - int(threadIdx.x)];
}
)");
  // Work with barriers stays as it is.
  Builder(exchanging.section(Stage::loop).body).emit(Instr::block_barrier);
  const std::string before = print_cuda(exchanging.section(Stage::loop).body);
  run(exchanging, "skip_masked_tiles");
  assert_text_equal(print_cuda(exchanging.section(Stage::loop).body), before);
}

void specialize_warps_makes_a_producer(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.kernel.threads = 96;
  draft.producer = true;
  draft.loop = loop_of(names);
  add_ring(draft, names, true);
  place_ring(draft);
  draft.section(Stage::loop).body = add_tile(names);
  run(draft, "specialize_warps");
  prints(draft, R"(kernel sums: 96 threads, 0 bytes of shared memory
  ring of 2 stages, at 0, mbarriers at 512
    tile tile: shared f32*, 256 bytes
  roles
    role producer, warp 2
      if lane == 0
        for i in 0 .. 8, rolled
          mbarrier_wait mbarrier empty + i % 2, i / 2 & 1 ^ 1  # orders memory
          stage: shared byte* = shared + i % 2 * 256
          tile: shared f32* = stage
          arriving: shared mbarrier* = full + i % 2
          mbarrier_arrive_expect mbarrier arriving, 256  # orders memory
          tma_load<2, true> write shared tile, map map0, mbarrier arriving at (0, i * 64)
  the loop
    declare sum: f32[1] = 0
    for i in 0 .. 8, rolled
      stage: shared byte* = shared + i % 2 * 256
      tile: shared f32* = stage
      mbarrier_wait mbarrier full + i % 2, i / 2 & 1  # orders memory
      sum[0] = sum[0] + tile[63 - int(threadIdx.x)]
      warp_barrier  # warp, orders memory
      if lane == 0
        mbarrier_arrive mbarrier empty + i % 2  # orders memory
)");
}

// With `transform` warps of their own wait for the tile, make another of it in the same stage, and tell those that compute at a
// `full` of its own; the stage is given back by these alone.
void specialize_warps_makes_operands_beside(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.schedule.transform = draft.schedule.producer = draft.schedule.setmaxnreg = true;
  draft.warp = make_variable("warp", Scalar::i32);
  draft.workers = 128;
  draft.kernel.threads = 384;
  draft.producer = true;
  draft.loop = loop_of(names);
  add_ring(draft, names, true);
  const Symbol made = make_pointer("made", names.stage, Scalar::f32);
  draft.ring.tiles.push_back({made, 0, names.tile});
  Arrival there{make_pointer("there", names.full, Scalar::mbarrier), {}};
  there.tiles = {made};
  there.transform = body([&](Builder& to) {
    to.assign(element(made, thread_index()),
              element(names.tile, thread_index()) + element(names.tile, thread_index()));
    to.emit(Instr::fence_async);
  });
  draft.ring.arrivals.push_back(there);
  place_ring(draft);
  draft.section(Stage::loop).body = body([&](Builder& to) {
    to.assign(element(names.sum, 0), element(names.sum, 0) + element(made, thread_index() - 1));
  });
  Draft barriers = draft;
  run(barriers, "init_mbarriers");
  assert_contains(print_ir(barriers.barrier_setup), "mbarrier_init mbarrier full + 1, 4\n");
  run(draft, "specialize_warps");
  prints(draft, R"(kernel sums: 384 threads, 0 bytes of shared memory
  ring of 2 stages, at 0, mbarriers at 512
    tile tile: shared f32*, 256 bytes
    tile made: shared f32*, 0 bytes
  roles
    role producer, warp 8
      setmaxnreg_dec<24>  # warpgroup
      if int(threadIdx.x) == 256
        for i in 0 .. 8, rolled
          mbarrier_wait mbarrier empty + i % 2, i / 2 & 1 ^ 1  # orders memory
          stage: shared byte* = shared + i % 2 * 256
          tile: shared f32* = stage
          made: shared f32* = tile
          arriving: shared mbarrier* = full + i % 2 * 2
          mbarrier_arrive_expect mbarrier arriving, 256  # orders memory
          tma_load<2, true> write shared tile, map map0, mbarrier arriving at (0, i * 64)
    role transform, warp 4
      setmaxnreg_dec<128>  # warpgroup
      own_warp: i32 = warp - 4
      for i in 0 .. 8, rolled
        stage: shared byte* = shared + i % 2 * 256
        tile: shared f32* = stage
        made: shared f32* = tile
        mbarrier_wait mbarrier full + i % 2 * 2, i / 2 & 1  # orders memory
        made[int(threadIdx.x)] = tile[int(threadIdx.x)] + tile[int(threadIdx.x)]
        fence_async  # orders proxies
        warp_barrier  # warp, orders memory
        if lane == 0
          mbarrier_arrive mbarrier full + i % 2 * 2 + 1  # orders memory
    setmaxnreg_inc<240>  # warpgroup
  the loop
    declare sum: f32[1] = 0
    for i in 0 .. 8, rolled
      stage: shared byte* = shared + i % 2 * 256
      tile: shared f32* = stage
      made: shared f32* = tile
      mbarrier_wait mbarrier full + i % 2 * 2, i / 2 & 1  # orders memory
      mbarrier_wait mbarrier full + i % 2 * 2 + 1, i / 2 & 1  # orders memory
      sum[0] = sum[0] + made[int(threadIdx.x) - 1]
      warp_barrier  # warp, orders memory
      if lane == 0
        mbarrier_arrive mbarrier empty + i % 2  # orders memory
)");
}

// Programmatic dependent launch: tiles of inputs come while the kernel in front still runs, others behind the
// wait, which each role has for itself.
void producers_fetch_inputs_before_they_wait(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.kernel.threads = 96;
  draft.producer = true;
  draft.waits_for_previous = true;
  draft.launches_dependents = LaunchesDependents::at_once;
  draft.loop = loop_of(names);
  add_ring(draft, names, true);
  place_ring(draft);
  const Symbol map = make_memory("map1", Space::tensor_map, Scalar::tensor_map);
  Builder(draft.ring.arrivals[0].copies.of_inputs)
      .emit(Instr::tma_load,
            {address(names.tile, 32), Expr(map), Expr(names.arriving), 0, Expr(names.iteration) * 64},
            {2, true});
  draft.section(Stage::loop).body = add_tile(names);
  run(draft, "specialize_warps");
  assert_false(draft.waits_for_previous);
  assert_text_equal(print_ir(draft.roles), R"(role producer, warp 2
  if lane == 0
    for i in 0 .. 2, rolled
      stage: shared byte* = shared + i % 2 * 256
      tile: shared f32* = stage
      arriving: shared mbarrier* = full + i % 2
      mbarrier_arrive_expect mbarrier arriving, 256  # orders memory
      tma_load<2, true> write shared tile + 32, map map1, mbarrier arriving at (0, i * 64)
    grid_wait  # grid, orders memory
    for i in 0 .. 8, rolled
      mbarrier_wait mbarrier empty + i % 2, i / 2 & 1 ^ 1  # orders memory
      stage: shared byte* = shared + i % 2 * 256
      tile: shared f32* = stage
      arriving: shared mbarrier* = full + i % 2
      if 2 <= i
        mbarrier_arrive_expect mbarrier arriving, 256  # orders memory
        tma_load<2, true> write shared tile + 32, map map1, mbarrier arriving at (0, i * 64)
      tma_load<2, true> write shared tile, map map0, mbarrier arriving at (0, i * 64)
  grid_wait  # grid, orders memory
grid_wait  # grid, orders memory
grid_launch_dependents  # grid
)");
}

void stage_loads_fetches_inputs_before_it_waits(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.waits_for_previous = true;
  draft.loop = loop_of(names);
  add_ring(draft, names, false);
  place_ring(draft);
  std::swap(draft.ring.cp_async.of_inputs, draft.ring.cp_async.others);
  draft.section(Stage::loop).body = add_tile(names);
  Draft reading = draft;
  run(draft, "stage_loads");
  assert_text_equal(print_ir(draft.loop_body), R"(declare sum: f32[1] = 0
for i in 0 .. 1, rolled
  stage: shared byte* = shared + i % 2 * 256
  tile: shared f32* = stage
  cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
cp_async_commit
grid_wait  # grid, orders memory
for step in -1 .. 8, rolled
  cp_async_wait<0>  # orders copies
  block_barrier  # block, orders memory
  if step + 1 < 8
    i: i32 = step + 1
    stage: shared byte* = shared + i % 2 * 256
    tile: shared f32* = stage
    if 0 <= step
      cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
  cp_async_commit
  if step < 0
    continue
  i: i32 = step
  stage: shared byte* = shared + i % 2 * 256
  tile: shared f32* = stage
  sum[0] = sum[0] + tile[63 - int(threadIdx.x)]
cp_async_wait<0>  # orders copies
)");
  // What stands in front of the loop may read what the kernel in front writes.
  reading.section(Stage::before).body =
      body([&](Builder& to) { to.assign(element(names.sum, 0), element(names.x, 0)); });
  run(reading, "stage_loads");
  assert_true(reading.waits_for_previous);
}

// Tiles are under way while what stands in front of the loop waits for memory.
void stage_loads_fetches_before_what_loads_first(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.waits_for_previous = true;
  draft.launches_dependents = LaunchesDependents::at_once;
  draft.loop = loop_of(names);
  add_ring(draft, names, false);
  draft.section(Stage::loop).steps += add_tile(names);
  Draft computing = draft;
  draft.section(Stage::before).steps +=
      body([&](Builder& to) { to.assign(element(names.sum, 0), element(names.x, 0)); });
  run(draft, "order_steps");
  assert_true(draft.fetches_first);
  assert_int_equal(draft.ring.first, 0);
  place_ring(draft);
  run(draft, "stage_loads");
  assert_text_equal(print_ir(draft.prologue), R"(grid_wait  # grid, orders memory
grid_launch_dependents  # grid
for i in 0 .. 1, rolled
  scope
    stage: shared byte* = shared + i % 2 * 256
    tile: shared f32* = stage
    cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
  cp_async_commit
)");
  assert_text_equal(print_ir(draft.loop_body), R"(declare sum: f32[1] = 0
for step in 0 .. 8, rolled
  cp_async_wait<0>  # orders copies
  block_barrier  # block, orders memory
  if step + 1 < 8
    i: i32 = step + 1
    stage: shared byte* = shared + i % 2 * 256
    tile: shared f32* = stage
    cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
  cp_async_commit
  i: i32 = step
  stage: shared byte* = shared + i % 2 * 256
  tile: shared f32* = stage
  sum[0] = sum[0] + tile[63 - int(threadIdx.x)]
cp_async_wait<0>  # orders copies
)");
  computing.section(Stage::before).steps +=
      body([&](Builder& to) { to.assign(element(names.sum, 0), literal(1, Scalar::f32)); });
  run(computing, "order_steps");
  assert_false(computing.fetches_first);
}

// Of inputs they come before the kernel in front has ended, the others behind the wait.
void stage_loads_fetches_inputs_before_what_loads_first(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.waits_for_previous = true;
  draft.fetches_first = true;
  draft.loop = loop_of(names);
  add_ring(draft, names, false);
  place_ring(draft);
  std::swap(draft.ring.cp_async.of_inputs, draft.ring.cp_async.others);
  draft.section(Stage::loop).body = add_tile(names);
  run(draft, "stage_loads");
  assert_text_equal(print_ir(draft.prologue), R"(for i in 0 .. 1, rolled
  stage: shared byte* = shared + i % 2 * 256
  tile: shared f32* = stage
  cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
cp_async_commit
grid_wait  # grid, orders memory
for i in 0 .. 1, rolled
  scope
    stage: shared byte* = shared + i % 2 * 256
    tile: shared f32* = stage
  cp_async_commit
)");
  assert_false(draft.waits_for_previous);
}

void pipeline_products_overlaps_iterations(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.loop = loop_of(names);
  add_ring(draft, names, false);
  place_ring(draft);
  PipelinedProduct& product = draft.loop->pipelined.emplace();
  product.buffer = make_memory("made", Space::shared, Scalar::f16);
  product.tile = make_pointer("made_now", product.buffer, Scalar::f16);
  product.previous_tile = make_pointer("made_before", product.buffer, Scalar::f16);
  product.copies = 3;
  product.tile_bytes = 1024;
  product.sums = {names.sum};
  Builder(product.group).emit(Instr::wgmma_commit);
  product.rest = body([&](Builder& to) { to.emit(Instr::wgmma_wait, {}, {0}); });
  draft.section(Stage::loop).body = add_tile(names);
  run(draft, "pipeline_products");
  prints(draft, R"(kernel sums: 64 threads, 0 bytes of shared memory
  ring of 2 stages, at 0
    tile tile: shared f32*, 256 bytes
  the loop
    declare sum: f32[1] = 0
    block_barrier  # block, orders memory
    scope
      i: i32 = 0
      made_now: shared f16* = made + i % 3 * 512
      made_before: shared f16* = made + (i + 2) % 3 * 512
      declare v: vector u32[4] = 0
      scope
        i: i32 = int(threadIdx.x)
        store_shared<unsigned, 4> write shared made_before + i * 8, use v
      fence_async  # orders proxies
    for i in 0 .. 2, rolled
      stage: shared byte* = shared + i % 2 * 256
      tile: shared f32* = stage
      cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
      cp_async_commit
    cp_async_wait<1>  # orders copies
    block_barrier  # block, orders memory
    for step in 0 .. 8, rolled
      i: i32 = step
      stage: shared byte* = shared + i % 2 * 256
      tile: shared f32* = stage
      made_now: shared f16* = made + i % 3 * 512
      made_before: shared f16* = made + (i + 2) % 3 * 512
      sum[0] = sum[0] + tile[63 - int(threadIdx.x)]
      cp_async_wait<0>  # orders copies
      block_barrier  # block, orders memory
      if step + 2 < 8
        i: i32 = step + 2
        stage: shared byte* = shared + i % 2 * 256
        tile: shared f32* = stage
        cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
      cp_async_commit
      wgmma_wait<0>  # warpgroup, orders products
    scope
      i: i32 = 8
      made_now: shared f16* = made + i % 3 * 512
      made_before: shared f16* = made + (i + 2) % 3 * 512
      wgmma_fence  # warpgroup
      wgmma_commit  # warpgroup
      wgmma_wait<0>  # warpgroup, orders products
      wgmma_landed update sum  # warpgroup
    cp_async_wait<0>  # orders copies
)");
}

void stage_loads_fills_a_ring(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.loop = loop_of(names);
  add_ring(draft, names, false);
  place_ring(draft);
  draft.section(Stage::loop).body = add_tile(names);
  run(draft, "stage_loads");
  prints(draft, R"(kernel sums: 64 threads, 0 bytes of shared memory
  ring of 2 stages, at 0
    tile tile: shared f32*, 256 bytes
  the loop
    declare sum: f32[1] = 0
    for step in -1 .. 8, rolled
      cp_async_wait<0>  # orders copies
      block_barrier  # block, orders memory
      if step + 1 < 8
        i: i32 = step + 1
        stage: shared byte* = shared + i % 2 * 256
        tile: shared f32* = stage
        cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
      cp_async_commit
      if step < 0
        continue
      i: i32 = step
      stage: shared byte* = shared + i % 2 * 256
      tile: shared f32* = stage
      sum[0] = sum[0] + tile[63 - int(threadIdx.x)]
    cp_async_wait<0>  # orders copies
)");
}

void stage_loads_prefetches_into_registers(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.loop = loop_of(names);
  draft.loop->prefetch = true;
  const Symbol now = make_registers("now", Scalar::f32, 1), next = make_registers("next", Scalar::f32, 1);
  draft.loop->loads = body([&](Builder& to) {
    to.assign(element(next, 0), element(names.x, Expr(names.iteration) * 64 + thread_index()));
  });
  draft.loop->take = body([&](Builder& to) { to.assign(element(now, 0), element(next, 0)); });
  draft.section(Stage::loop).body =
      body([&](Builder& to) { to.assign(element(names.sum, 0), element(names.sum, 0) + element(now, 0)); });
  run(draft, "stage_loads");
  prints(draft, R"(kernel sums: 64 threads, 0 bytes of shared memory
  the loop
    declare sum: f32[1] = 0
    for step in 0 .. 9, rolled
      if step < 8
        i: i32 = step
        next[0] = x[i * 64 + int(threadIdx.x)]
      if 0 < step
        i: i32 = step - 1
        sum[0] = sum[0] + now[0]
      now[0] = next[0]
)");
}

void join_sections_makes_one_body(void**) {
  const Names names;
  Draft draft = draft_of(names);
  auto marked = [](const char* name) {
    return body([&](Builder& to) { to.let(make_variable(name, Scalar::i32), 0); });
  };
  draft.thread_names = marked("thread");
  draft.memory_names = marked("memory");
  draft.block_names = marked("place");
  draft.barrier_setup = marked("barriers");
  draft.prologue = marked("prologue");
  draft.roles = marked("role");
  draft.section(Stage::before).body = marked("before");
  draft.loop_body = marked("loop");
  draft.section(Stage::after).body = marked("after");
  draft.section(Stage::after).begins_with_barrier = true;
  draft.end = marked("end");
  run(draft, "join_sections");
  prints(draft, R"(kernel sums: 64 threads, 0 bytes of shared memory
  setup
    thread: i32 = 0
    memory: i32 = 0
    place: i32 = 0
    barriers: i32 = 0
  body
    prologue: i32 = 0
    role: i32 = 0
    before: i32 = 0
    loop: i32 = 0
    block_barrier  # block, orders memory
    after: i32 = 0
    end: i32 = 0
)");
}

void overlap_kernels_waits_and_lets_go(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.waits_for_previous = true;
  draft.launches_dependents = LaunchesDependents::at_end;
  draft.kernel.body = {Return{}};
  run(draft, "overlap_kernels");
  prints(draft, R"(kernel sums: 64 threads, 0 bytes of shared memory
  setup
    grid_wait  # grid, orders memory
  body
    return
    grid_launch_dependents  # grid
)");
}

// All of them, one after the other: the example at the head of ir.h.
void passes_make_a_kernel(void**) {
  const Names names;
  Draft draft = draft_of(names);
  draft.kernel.parameters = {{names.x}, {names.y}};
  draft.loop = loop_of(names);
  add_ring(draft, names, false);
  draft.section(Stage::loop).steps += add_tile(names);
  draft.buffers = {buffer("s0", 256)};
  StepList& after = draft.section(Stage::after).steps;
  after += put(draft.buffers[0], names.sum);
  after += get(draft.buffers[0], names.sum);
  after += body([&](Builder& to) { to.assign(element(names.y, thread_index()), element(names.sum, 0)); });
  draft.thread_names =
      body([&](Builder& to) { to.let(names.lane, call(Function::lane_index, Scalar::i32, {})); });
  Chooser chooser({}, nullptr);
  size_t seen = 0;
  assert_ok(run_passes(draft, {hopper(), chooser}, [&](const Draft&, const Pass* pass) {
    assert_true(seen == 0 ? pass == nullptr : pass == &passes()[seen - 1]);
    ++seen;
  }));
  assert_int_equal(seen, passes().size() + 1);
  prints(draft, R"(kernel sums: 64 threads, 512 bytes of shared memory
  parameter x: global const f32*
  parameter y: global f32*
  setup
    lane: i32 = lane_index()
    shared: shared byte* = dynamic_shared<unsigned char>()
    s0: shared f32* = shared
  body
    declare sum: f32[1] = 0
    for step in -1 .. 8, rolled
      cp_async_wait<0>  # orders copies
      block_barrier  # block, orders memory
      if step + 1 < 8
        i: i32 = step + 1
        stage: shared byte* = shared + i % 2 * 256
        tile: shared f32* = stage
        cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
      cp_async_commit
      if step < 0
        continue
      i: i32 = step
      stage: shared byte* = shared + i % 2 * 256
      tile: shared f32* = stage
      sum[0] = sum[0] + tile[63 - int(threadIdx.x)]
    cp_async_wait<0>  # orders copies
    block_barrier  # block, orders memory
    s0[int(threadIdx.x)] = sum[0]
    block_barrier  # block, orders memory
    sum[0] = s0[int(threadIdx.x) ^ 1]
    y[int(threadIdx.x)] = sum[0]
  buffer s0: 256 bytes, exchanged, moments 2 to 3, at 0
  ring of 2 stages, at 0
    tile tile: shared f32*, 256 bytes
)");
}

}  // namespace
}  // namespace quern::ir

int main() {
  using namespace quern::ir;
  const CMUnitTest tests[] = {cmocka_unit_test(order_steps_puts_few_barriers),
                              cmocka_unit_test(plan_shared_memory_shares_places),
                              cmocka_unit_test(init_mbarriers_is_done_by_one_thread),
                              cmocka_unit_test(pairs_of_blocks_share_their_mbarriers),
                              cmocka_unit_test(await_products_waits_at_the_end_of_an_iteration),
                              cmocka_unit_test(skip_masked_tiles_asks_all_threads),
                              cmocka_unit_test(specialize_warps_makes_a_producer),
                              cmocka_unit_test(specialize_warps_makes_operands_beside),
                              cmocka_unit_test(producers_fetch_inputs_before_they_wait),
                              cmocka_unit_test(stage_loads_fetches_inputs_before_it_waits),
                              cmocka_unit_test(stage_loads_fetches_before_what_loads_first),
                              cmocka_unit_test(stage_loads_fetches_inputs_before_what_loads_first),
                              cmocka_unit_test(pipeline_products_overlaps_iterations),
                              cmocka_unit_test(stage_loads_fills_a_ring),
                              cmocka_unit_test(stage_loads_prefetches_into_registers),
                              cmocka_unit_test(join_sections_makes_one_body),
                              cmocka_unit_test(overlap_kernels_waits_and_lets_go),
                              cmocka_unit_test(passes_make_a_kernel)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
