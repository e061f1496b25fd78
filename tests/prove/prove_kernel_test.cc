// prove_kernel: small kernels that keep each rule are proved, and the same with one thing wrong are disproved
// by a thread that breaks it.
#include "core/prove/prove_kernel.h"

#include <functional>

#include "core/kernel/builder.h"
#include "core/kernel/verify_kernel.h"
#include "tests/support/test.h"

namespace quern {
namespace {

using namespace ir;

// 4 blocks of 64 threads; x and y have 1000 elements, a box of the map 32.
struct Names {
  Symbol in = make_memory("x", Space::global, Scalar::f32),
         out = make_memory("y", Space::global, Scalar::f32, true), lane = make_variable("lane", Scalar::i32),
         warp = make_variable("warp", Scalar::i32), index = make_variable("i", Scalar::i32),
         memory = make_memory("shared", Space::shared, Scalar::byte),
         tile = make_memory("tile", Space::shared, Scalar::f32), values = make_registers("v", Scalar::f32, 4),
         full = make_memory("full", Space::shared, Scalar::mbarrier),
         empty = make_memory("empty", Space::shared, Scalar::mbarrier),
         map = make_memory("map0", Space::tensor_map, Scalar::tensor_map);
  Expr thread = thread_index();
};

using Write = std::function<void(Builder&, const Names&)>;

struct Launched {
  Kernel kernel;
  LaunchFacts facts;
};

Launched launched(const Write& write, bool stores, int threads = 64, uint32_t cluster = 1) {
  const Names names;
  Launched out;
  Kernel& kernel = out.kernel;
  kernel.name = "small";
  kernel.threads = threads;
  kernel.shared_bytes = 1024;
  kernel.parameters = {{names.in}, {names.map}};
  if (stores) kernel.parameters.push_back({names.out});
  Builder to(kernel.setup);
  to.let(names.lane, call(Function::lane_index, Scalar::i32, {}));
  to.let(names.warp, thread_index() / 32);
  to.let(names.memory, call(Function::dynamic_shared, Scalar::byte, {}, {Scalar::byte}));
  to.let(names.tile, address(names.memory, 0));
  to.let(names.full, address(names.memory, 768));
  to.let(names.empty, address(names.full, 2));
  to.let(names.index, block_index(0) * threads + thread_index());
  Builder body(kernel.body);
  body.declare(names.values);
  write(body, names);
  out.facts.grid.x = 4;
  out.facts.cluster.x = cluster;
  TensorMap map;
  map.dtype = DType::f32;
  map.shape = {64, 32};
  map.strides = {32, 1};
  map.box = {1, 32};
  out.facts.parameters = {{1000, 16, {}}, {2048, 16, map}};
  if (stores) out.facts.parameters.push_back({256, 16, {}});
  return out;
}

Proof proof_of(const Launched& launched) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  ProveOptions options;
  options.solver = solver.get();
  return prove_kernel(launched.kernel, launched.facts, options);
}

void proves(const Launched& launched) {
  const Proof proof = proof_of(launched);
  if (!proof.proved()) fail_test(proof.summary());
}
void disproves(const Launched& launched, const std::string& rule, const std::string& reason) {
  const Proof proof = proof_of(launched);
  const ProofFinding* found = proof.disproof();
  if (!found) fail_test("not disproved: " + proof.summary());
  assert_text_equal(found->rule, rule);
  assert_contains(found->reason, reason);
}

Expr loaded(const Names& names, const Expr& at) { return element(names.in, at); }

void accesses_lie_in_their_memory(void**) {
  auto reads = [](const Expr& guard, const Expr& at) {
    return launched(
        [=](Builder& to, const Names& names) {
          to.when(guard, [&](Builder& some) { some.assign(element(names.values, 0), loaded(names, at)); });
        },
        false);
  };
  const Expr number = block_index(0) * 64 + thread_index();
  proves(reads(truth(true), number));
  proves(reads(less(number, 250), number * 4));
  disproves(reads(less(number, 251), number * 4), "bounds",
            "block (3, 0, 0), thread 58: 4 bytes of x, which has 4000");
  disproves(reads(truth(true), number - 1), "bounds",
            "block (0, 0, 0), thread 0: 4 bytes of x, which has 4000, before its beginning");
  // The guard of a selection guards what it selects.
  auto selects = [](int64_t below) {
    return launched(
        [=](Builder& to, const Names& names) {
          to.unrolled("r", 4, [&](Builder& each, const Expr& r) {
            const Expr at = Expr(names.index) * 4 + r * 2;
            each.assign(element(names.values, r),
                        select(less(at, below), loaded(names, at), literal(0, Scalar::f32)));
          });
        },
        false);
  };
  proves(selects(1000));
  disproves(selects(1002), "bounds", "4 bytes of x, which has 4000");
}

void vectors_are_aligned(void**) {
  auto loads = [](int64_t first) {
    return launched(
        [=](Builder& to, const Names& names) {
          to.emit(Instr::load_global,
                  {names.values, address(names.in, Expr(names.thread) * 4 + first), truth(true)},
                  {Scalar::f32, 4, false});
        },
        false);
  };
  proves(loads(8));
  disproves(loads(2), "alignment", "not at a multiple of 16 bytes");
}

void every_element_has_one_writer(void**) {
  auto stores = [](const Expr& guard, const Expr& at) {
    return launched(
        [=](Builder& to, const Names& names) {
          to.when(guard,
                  [&](Builder& some) { some.assign(element(names.out, at), literal(1, Scalar::f32)); });
        },
        true);
  };
  const Expr number = block_index(0) * 64 + thread_index();
  proves(stores(truth(true), number));
  proves(stores(truth(true), number ^ 5));
  // Reversed, in rows of 37 with a ragged end.
  const Expr row = number / 37, column = number % 37;
  proves(stores(truth(true), row * 37 + column));
  disproves(stores(truth(true), number / 2), "writers", "another thread writes the same element");
  disproves(stores(less(number, 255), number), "writers",
            "255 of 256 elements of y are written, not number 255");
  disproves(stores(truth(true), row * 36 + column), "writers", "another thread writes the same element");
}

// tile[thread] is written, and tile[number] read behind `between`.
Write exchanges(const Expr& read, const Write& between) {
  return [=](Builder& to, const Names& names) {
    to.assign(element(names.tile, thread_index()), literal(1, Scalar::f32));
    between(to, names);
    to.assign(element(names.values, 0), element(names.tile, read));
  };
}
Write emits(Instr code, std::vector<Expr> operands = {}, TemplateArgs templates = {}) {
  return [=](Builder& to, const Names&) { to.emit(code, operands, templates); };
}
const Write kNothing = [](Builder&, const Names&) {};

void shared_memory_is_ordered_by_barriers(void**) {
  const Expr thread = thread_index();
  proves(launched(exchanges(thread, kNothing), false));
  disproves(launched(exchanges(thread ^ 1, kNothing), false), "races", "with nothing that orders them");
  proves(launched(exchanges(thread ^ 1, emits(Instr::block_barrier)), false));
  // A barrier of the warp is enough within it.
  proves(launched(exchanges(thread ^ 1, emits(Instr::warp_barrier)), false));
  disproves(launched(exchanges(thread ^ 33, emits(Instr::warp_barrier)), false), "races", "thread");
  // One that only some warps come to is enough for these.
  auto of_some = [&](const Expr& who, bool all_write) {
    return launched(
        [=](Builder& to, const Names& names) {
          if (all_write) to.assign(element(names.tile, thread_index()), literal(1, Scalar::f32));
          to.when(who, [&](Builder& some) {
            if (!all_write) some.assign(element(names.tile, thread_index()), literal(1, Scalar::f32));
            some.emit(Instr::warp_barrier);
            if (!all_write) some.assign(element(names.values, 0), element(names.tile, thread_index() ^ 1));
          });
          if (all_write) to.assign(element(names.values, 0), element(names.tile, thread_index() ^ 1));
        },
        false);
  };
  proves(of_some(equal(thread / 32, 1), false));
  disproves(of_some(equal(thread / 32, 1), true), "races", "with nothing that orders them");
  disproves(of_some(less(thread, 40), false), "races", "with nothing that orders them");
  // Two that write the same.
  disproves(launched(
                [](Builder& to, const Names& names) {
                  to.assign(element(names.tile, thread_index() / 2), literal(1, Scalar::f32));
                },
                false),
            "races", "the same bytes as another thread's");
}

// What a condition reads from memory may hold for any threads: neither proved nor called wrong.
void data_decides_nothing(void**) {
  const auto by_data = [](Builder& to, const Names& names) {
    to.assign(element(names.values, 0), element(names.in, thread_index()));
    to.when(less(element(names.values, 0), literal(1, Scalar::f32)),
            [&](Builder& some) { some.assign(element(names.tile, 0), literal(1, Scalar::f32)); });
  };
  const Proof proof = proof_of(launched(by_data, false));
  assert_null(proof.disproof());
  assert_int_equal(proof.findings.size(), 1);
  assert_text_equal(proof.findings[0].rule, "races");
  assert_contains(proof.findings[0].reason, "depends on what memory holds");
}

void iterations_meet(void**) {
  auto loop = [](bool twice) {
    return launched(
        [=](Builder& to, const Names& names) {
          to.rolled(make_variable("step", Scalar::i32), 0, 5, [&](Builder& each) {
            exchanges(thread_index() ^ 1, emits(Instr::block_barrier))(each, names);
            if (twice) each.emit(Instr::block_barrier);
          });
        },
        false);
  };
  proves(loop(true));
  disproves(loop(false), "races", "step 1");
}

void copies_are_waited_for(void**) {
  auto copies = [](const Write& between, const Expr& read) {
    return launched(
        [=](Builder& to, const Names& names) {
          to.emit(Instr::cp_async, {address(names.tile, thread_index()), address(names.in, thread_index())},
                  {4});
          to.emit(Instr::cp_async_commit);
          between(to, names);
          to.assign(element(names.values, 0), element(names.tile, read));
          to.emit(Instr::cp_async_wait, {}, {0});
        },
        false);
  };
  const Expr thread = thread_index();
  const Write wait = emits(Instr::cp_async_wait, {}, {0}), barrier = emits(Instr::block_barrier);
  auto both = [](const Write& a, const Write& b) {
    return Write([=](Builder& to, const Names& names) { a(to, names), b(to, names); });
  };
  proves(copies(wait, thread));
  disproves(copies(kNothing, thread), "races", "thread 0");
  disproves(copies(wait, thread ^ 1), "races", "with nothing that orders them");
  disproves(copies(both(barrier, wait), thread ^ 1), "races", "with nothing that orders them");
  proves(copies(both(wait, barrier), thread ^ 1));
  // All but the last group: this one is it.
  disproves(copies(both(emits(Instr::cp_async_wait, {}, {1}), barrier), thread ^ 1), "races", "with nothing");
}

// The mbarriers of two stages: a producer makes them full, so many warps empty.
void initialise_mbarriers(Builder& to, const Names& names, int64_t arrivals) {
  to.when(equal(thread_index(), 0), [&](Builder& first) {
    for (int stage : {0, 1}) {
      first.emit(Instr::mbarrier_init, {address(names.full, stage), 1});
      first.emit(Instr::mbarrier_init, {address(names.empty, stage), arrivals});
    }
    first.emit(Instr::mbarrier_init_fence);
  });
}

// A ring of two stages of 128 bytes that a producer warp fills; each of two warps reads its stage.
struct Ring {
  int64_t bytes = 128, arrivals = 2, phase = 0;
  bool waits_for_empty = true, joins_warp = true;
};
Launched ring(const Ring& how) {
  return launched(
      [=](Builder& to, const Names& names) {
        initialise_mbarriers(to, names, how.arrivals);
        to.emit(Instr::block_barrier);
        const Symbol step = make_variable("step", Scalar::i32);
        const Expr stage = Expr(step) % 2, phase = Expr(step) / 2 & 1;
        WarpRole producer{"producer", 2, {}};
        Builder(producer.body).when(equal(names.lane, 0), [&](Builder& one) {
          one.rolled(step, 0, 6, [&](Builder& each) {
            if (how.waits_for_empty)
              each.emit(Instr::mbarrier_wait, {address(names.empty, stage), phase ^ 1});
            each.emit(Instr::mbarrier_arrive_expect, {address(names.full, stage), how.bytes});
            each.emit(Instr::tma_load,
                      {address(names.tile, stage * 32), names.map, address(names.full, stage), 0, step},
                      {2, false});
          });
        });
        to.add(std::move(producer));
        to.rolled(step, 0, 6, [&](Builder& each) {
          each.emit(Instr::mbarrier_wait, {address(names.full, stage), phase ^ how.phase});
          each.assign(element(names.values, 0), element(names.tile, stage * 32 + Expr(names.lane)));
          if (how.joins_warp) each.emit(Instr::warp_barrier);
          each.when(equal(names.lane, 0),
                    [&](Builder& one) { one.emit(Instr::mbarrier_arrive, {address(names.empty, stage)}); });
        });
      },
      false, 96);
}

void phases_and_bytes_match(void**) {
  proves(ring({}));
  disproves(ring({.bytes = 132}), "phases", "it waits forever: phase 0 lacks 0 arrivals and 4 bytes");
  disproves(ring({.bytes = 64}), "phases", "more bytes are asked for than the phase announces");
  disproves(ring({.arrivals = 3}), "phases", "it waits forever");
  disproves(ring({.arrivals = 1}), "phases", "2 arrivals, and the phase lacks 1");
  disproves(ring({.phase = 1}), "phases", "");
  disproves(ring({.waits_for_empty = false}), "phases", "");
  // Lane 0 gives the stage back while others may still read.
  disproves(ring({.joins_warp = false}), "races", "step 2");
}

// The same ring for a pair of blocks, with stages of 256 bytes: each block brings half of a stage to both.
struct SharedRing {
  int64_t bytes = 256, arrivals = 4, mask = 3;
  Expr half = call(Function::cluster_rank, Scalar::i32, {}), to_rank = 0;
  Instr begins = Instr::cluster_barrier;
  bool to_lanes = true, waits_for_empty = true, joins_warp = true, ends = true;
};
Launched shared_ring(const SharedRing& how) {
  return launched(
      [=](Builder& to, const Names& names) {
        initialise_mbarriers(to, names, how.arrivals);
        to.emit(how.begins);
        const Symbol step = make_variable("step", Scalar::i32);
        const Expr stage = Expr(step) % 2, phase = Expr(step) / 2 & 1;
        WarpRole producer{"producer", 2, {}};
        Builder(producer.body).when(equal(names.lane, 0), [&](Builder& one) {
          one.rolled(step, 0, 6, [&](Builder& each) {
            if (how.waits_for_empty)
              each.emit(Instr::mbarrier_wait, {address(names.empty, stage), phase ^ 1});
            each.emit(Instr::mbarrier_arrive_expect, {address(names.full, stage), how.bytes});
            each.emit(Instr::tma_load_multicast,
                      {address(names.tile, stage * 64 + how.half * 32), names.map, address(names.full, stage),
                       how.mask, 0, step},
                      {2});
          });
        });
        to.add(std::move(producer));
        to.rolled(step, 0, 6, [&](Builder& each) {
          each.emit(Instr::mbarrier_wait, {address(names.full, stage), phase});
          each.assign(element(names.values, 0), element(names.tile, stage * 64 + thread_index()));
          if (how.joins_warp) each.emit(Instr::warp_barrier);
          each.when(less(names.lane, 2), [&](Builder& some) {
            some.emit(Instr::mbarrier_arrive_at,
                      {address(names.empty, stage), how.to_lanes ? Expr(names.lane) : how.to_rank});
          });
        });
        if (how.ends) to.emit(Instr::cluster_barrier);
      },
      false, 96, 2);
}

void pairs_of_blocks_share_stages(void**) {
  proves(shared_ring({}));
  // The other block's warps are not counted, or not told.
  disproves(shared_ring({.arrivals = 2}), "phases", "it waits forever: phase 3 lacks 1 arrivals");
  disproves(shared_ring({.to_rank = 0, .to_lanes = false}), "phases", "");
  disproves(shared_ring({.to_rank = Expr(2), .to_lanes = false}), "phases",
            "block 2 of the cluster is signalled, which has 2");
  disproves(shared_ring({.ends = false}), "phases", "a block may end while another arrives at its mbarrier");
  disproves(shared_ring({.waits_for_empty = false}), "phases", "");
  disproves(shared_ring({.joins_warp = false}), "races", "step");
  // Both bring the first half; each to itself; more than there is to come.
  disproves(shared_ring({.half = 0}), "races", "with nothing that orders them");
  disproves(shared_ring({.mask = 1}), "phases", "");
  disproves(shared_ring({.bytes = 128}), "phases", "");
  disproves(shared_ring({.bytes = 384}), "phases", "it waits forever");
  disproves(shared_ring({.begins = Instr::block_barrier}), "phases",
            "an mbarrier that nobody has initialised");
}

// Each block has two rows of 32 numbers of the eight of a map: written to shared memory, stored by a thread.
struct BoxStored {
  Expr row = block_index(0) * 2, column = 0, who = equal(thread_index(), 0);
  std::optional<Expr> waiter = {};  // where it is another
  int64_t box_rows = 2;
  bool barrier = true, commits = true, waits = true, writes_again = false;
  int64_t pending = 0;
};
Launched box_stored(const BoxStored& how) {
  const Symbol map = make_memory("map1", Space::tensor_map, Scalar::tensor_map, true);
  Launched out = launched(
      [=](Builder& to, const Names& names) {
        to.assign(element(names.tile, thread_index()), literal(1, Scalar::f32));
        to.emit(Instr::fence_async);
        if (how.barrier) to.emit(Instr::block_barrier);
        to.when(how.who, [&](Builder& one) {
          one.emit(Instr::tma_store, {address(names.tile, 0), map, how.column, how.row}, {2});
        });
        to.when(how.waiter.value_or(how.who), [&](Builder& one) {
          if (how.commits) one.emit(Instr::tma_store_commit);
          if (how.waits) one.emit(Instr::tma_store_wait, {}, {how.pending});
        });
        if (!how.writes_again) return;
        to.emit(Instr::block_barrier);
        to.assign(element(names.tile, thread_index()), literal(2, Scalar::f32));
      },
      false);
  TensorMap stored;
  stored.dtype = DType::f32;
  stored.shape = {8, 32};
  stored.strides = {32, 1};
  stored.box = {how.box_rows, 32};
  out.kernel.parameters.push_back({map});
  out.facts.parameters.push_back({256, 16, stored});
  return out;
}

void boxes_are_stored(void**) {
  proves(box_stored({}));
  proves(box_stored({.writes_again = true}));
  disproves(box_stored({.barrier = false}), "races", "with nothing that orders them");
  disproves(box_stored({.waits = false}), "phases", "nobody waits for the store");
  disproves(box_stored({.commits = false}), "phases", "nobody waits for the store");
  disproves(box_stored({.pending = 1}), "phases", "nobody waits for the store");
  disproves(box_stored({.waiter = equal(thread_index(), 1)}), "phases", "nobody waits for the store");
  proves(box_stored({.waiter = truth(true)}));
  disproves(box_stored({.who = less(thread_index(), 2)}), "writers",
            "another thread writes the same element");
  // Rows that nobody stores, that two blocks store, and what lies outside of the tensor.
  disproves(box_stored({.box_rows = 1}), "writers", "128 of 256 elements of map1 are written, not number 32");
  disproves(box_stored({.row = block_index(0)}), "writers", "another thread writes the same element");
  disproves(box_stored({.column = 4}), "writers", "224 of 256 elements");
  disproves(box_stored({.box_rows = 3}), "writers", "another thread writes the same element");
}

void clusters_end_together(void**) {
  auto cluster = [](bool begins, bool ends) {
    return launched(
        [=](Builder& to, const Names& names) {
          to.assign(element(names.tile, thread_index()), literal(1, Scalar::f32));
          to.emit(begins ? Instr::cluster_barrier : Instr::block_barrier);
          to.emit(Instr::load_cluster, {names.values, address(names.tile, thread_index()), 1},
                  {Scalar::f32, 1});
          if (ends) to.emit(Instr::cluster_barrier);
        },
        false, 64, 2);
  };
  proves(cluster(true, true));
  disproves(cluster(false, true), "races", "with nothing that orders them");
  disproves(cluster(true, false), "races", "a block may end while another reads its shared memory");
}

}  // namespace
}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(accesses_lie_in_their_memory), cmocka_unit_test(vectors_are_aligned),
      cmocka_unit_test(every_element_has_one_writer), cmocka_unit_test(shared_memory_is_ordered_by_barriers),
      cmocka_unit_test(data_decides_nothing),         cmocka_unit_test(iterations_meet),
      cmocka_unit_test(copies_are_waited_for),        cmocka_unit_test(phases_and_bytes_match),
      cmocka_unit_test(pairs_of_blocks_share_stages), cmocka_unit_test(boxes_are_stored),
      cmocka_unit_test(clusters_end_together)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
