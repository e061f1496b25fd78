// verify_kernel: small kernels that keep all rules, and the same with one of them broken.
#include "core/kernel/verify_kernel.h"

#include <functional>

#include "core/kernel/builder.h"
#include "tests/support/test.h"

namespace quern::ir {
namespace {

// y[i] = x[63 - i] through shared memory that cp.async fills, for 64 threads.
struct Names {
  Symbol in = make_memory("x", Space::global, Scalar::f32),
         out = make_memory("y", Space::global, Scalar::f32, true), lane = make_variable("lane", Scalar::i32),
         memory = make_memory("shared", Space::shared, Scalar::byte),
         tile = make_memory("tile", Space::shared, Scalar::f32), values = make_registers("v", Scalar::f32, 4),
         full = make_memory("full", Space::shared, Scalar::mbarrier),
         map = make_memory("map0", Space::tensor_map, Scalar::tensor_map),
         stored = make_memory("map1", Space::tensor_map, Scalar::tensor_map, true);
};

using Write = std::function<void(Builder&, const Names&)>;

Kernel kernel_of(const Write& write) {
  const Names names;
  Kernel kernel;
  kernel.name = std::string("reverse");
  kernel.threads = 64;
  kernel.shared_bytes = 1024;
  kernel.parameters = {{names.in}, {names.out}, {names.map}, {names.stored}};
  Builder to(kernel.setup);
  to.let(names.lane, call(Function::lane_index, Scalar::i32, {}));
  to.let(names.memory, call(Function::dynamic_shared, Scalar::byte, {}, {Scalar::byte}));
  to.let(names.tile, address(names.memory, 0));
  to.let(names.full, address(names.memory, 512));
  Builder body(kernel.body);
  write(body, names);
  return kernel;
}

void keeps(const Write& write) { assert_ok(verify_kernel(kernel_of(write))); }

void breaks(const Write& write, const std::string& message) {
  const Status status = verify_kernel(kernel_of(write));
  assert_false(status.ok());
  if (status.message().find(message) == std::string::npos) assert_text_equal(status.message(), message);
}

Write with(const Write& first, const Write& second) {
  return [=](Builder& to, const Names& names) {
    first(to, names);
    second(to, names);
  };
}
Write emits(Instr code, std::vector<Expr> operands = {}, TemplateArgs templates = {}) {
  return [=](Builder& to, const Names&) { to.emit(code, operands, templates); };
}
const Write kDeclares = [](Builder& to, const Names& names) { to.declare(names.values); };

void names_are_defined_once_and_before_their_uses(void**) {
  const Write use = [](Builder& to, const Names& names) {
    to.assign(element(names.values, 3), literal(1, Scalar::f32));
  };
  keeps(with(kDeclares, use));
  breaks(use, "v is used before it is defined: v[3] = ");
  breaks(with(kDeclares, kDeclares), "v is defined twice in a scope: float v[4]");
  // What a scope defines is not seen behind it.
  breaks(
      [&](Builder& to, const Names& names) {
        to.when(equal(names.lane, 0), [&](Builder& one) { kDeclares(one, names); });
        use(to, names);
      },
      "v is used before it is defined");
}

void only_what_may_be_written_is(void**) {
  auto write = [](const Symbol Names::*place) {
    return [=](Builder& to, const Names& names) {
      to.assign(element(names.*place, names.lane), literal(1, Scalar::f32));
    };
  };
  keeps(write(&Names::out));
  breaks(write(&Names::in), "x is assigned to, but may only be read: x[lane] = ");
  breaks([](Builder& to, const Names& names) { to.assign(element(names.out, 0), Expr(1)); },
         "y is of type float, the value of type int");
}

void operands_are_what_the_row_says(void**) {
  auto load = [](int count, int at) {
    return with(kDeclares, [=](Builder& to, const Names& names) {
      to.emit(Instr::load_global, {address(names.values, at), address(names.in, names.lane), truth(true)},
              {Scalar::f32, count, true});
    });
  };
  keeps(load(4, 0));
  breaks(load(4, 1), "v has 4 registers, and 1 to 4 are named: load_elements<float, 4, true>");
  breaks(load(3, 0), "an access has 12 bytes");
  breaks(with(kDeclares,
              [](Builder& to, const Names& names) {
                to.emit(Instr::load_shared, {names.values, address(names.in, 0)}, {Scalar::f32, 4});
              }),
         "operand 1 is not what its row says: s");
  breaks(emits(Instr::block_barrier, {1}), "block_barrier has 1 operands, its row ");
  breaks(with(kDeclares,
              [](Builder& to, const Names& names) {
                to.emit(Instr::store_global, {address(names.in, 0), names.values}, {Scalar::f32, 4});
              }),
         "operand 0 is not what its row says: G");
}

void registers_are_counted_through_loops(void**) {
  auto loop = [](int count) {
    return with(kDeclares, [=](Builder& to, const Names& names) {
      to.unrolled("r", count, [&](Builder& each, const Expr& r) {
        each.assign(element(names.values, r), literal(0, Scalar::f32));
      });
    });
  };
  keeps(loop(4));
  breaks(loop(5), "v has 4 registers, and 0 to 4 are named");
}

void all_threads_come_to_a_barrier(void**) {
  auto guarded = [](const Expr& condition, Instr code) {
    return [=](Builder& to, const Names&) { to.when(condition, [&](Builder& some) { some.emit(code); }); };
  };
  const Expr warp = thread_index() / 32;
  keeps(guarded(equal(block_index(0), 3), Instr::block_barrier));
  keeps(guarded(equal(warp, 0), Instr::warp_barrier));
  breaks(guarded(equal(warp, 0), Instr::block_barrier),
         "only some threads come to block_barrier: __syncthreads();");
  breaks(guarded(less(thread_index(), 7), Instr::warp_barrier), "only some threads come to warp_barrier");
  breaks(
      [](Builder& to, const Names&) {
        to.when(less(60, thread_index()), [](Builder& some) { some.add(Return{}); });
        to.emit(Instr::block_barrier);
      },
      "only some threads come to block_barrier");
}

void what_is_broadcast_is_the_same_in_all_lanes(void**) {
  auto lets = [](const Expr& value) {
    return [=](Builder& to, const Names&) {
      to.let(make_variable("known", Scalar::i32), call(Function::broadcast, Scalar::i32, {value}));
    };
  };
  keeps(lets(thread_index() / 32));
  keeps(lets(block_index(0)));
  breaks(lets(thread_index() / 16), "lanes differ in what is broadcast");
}

void named_barriers_count_who_comes(void**) {
  const Write role = [](Builder& to, const Names&) { to.add(WarpRole{"producer", 1, {}}); };
  // All threads of a block agree: each role comes to that by itself.
  const Write agrees = [](Builder& to, const Names&) {
    to.let(make_variable("passed", Scalar::boolean),
           call(Function::all_agree, Scalar::boolean, {truth(true)}, {64}));
  };
  const Write agreeing_role = [&](Builder& to, const Names& names) {
    WarpRole producer{"producer", 1, {}};
    Builder body(producer.body);
    agrees(body, names);
    to.add(producer);
  };
  keeps(with(agreeing_role, agrees));
  breaks(with(agrees, agreeing_role), "a role comes to 1 agreements of all threads, others to 0");
  breaks(with(role, agrees), "a role comes to 0 agreements of all threads, others to 1");
  breaks(with(agreeing_role, emits(Instr::named_barrier, {}, {32})),
         "a role comes to 1 agreements of all threads, others to 0");
  keeps(with(role, emits(Instr::named_barrier, {}, {32})));
  breaks(with(role, emits(Instr::named_barrier, {}, {64})),
         "named_barrier is of 64 threads, and 32 come: barrier_of<64>();");
  breaks(with(role, emits(Instr::block_barrier)), "block_barrier is of 64 threads, and 32 come");
}

const Write kCopy = [](Builder& to, const Names& names) {
  to.emit(Instr::cp_async, {address(names.tile, thread_index()), address(names.in, thread_index())}, {4});
};
const Write kRead = [](Builder& to, const Names& names) {
  to.assign(element(names.out, thread_index()), element(names.tile, Expr(63) - thread_index()));
};

void copies_are_committed_and_waited_for(void**) {
  const Write commit = emits(Instr::cp_async_commit), wait = emits(Instr::cp_async_wait, {}, {0}),
              barrier = emits(Instr::block_barrier);
  keeps(with(with(with(kCopy, commit), with(wait, barrier)), kRead));
  breaks(with(with(kCopy, wait), with(barrier, kRead)),
         "copies are waited for that are not committed: cp_async_wait<0>();");
  breaks(with(kCopy, commit), "copies are under way when the kernel ends");
  breaks(with(with(kCopy, commit), with(barrier, kRead)),
         "tile is read before the copies into it are waited for: y[");
  breaks(with(with(kCopy, commit), with(wait, kRead)),
         "tile is read before the copies into it are waited for");
}

void stores_by_tma_are_fenced_and_waited_for(void**) {
  const Write write = [](Builder& to, const Names& names) {
    to.assign(element(names.tile, thread_index()), literal(1, Scalar::f32));
  };
  const Write store = [](Builder& to, const Names& names) {
    to.emit(Instr::tma_store, {address(names.tile, 0), names.stored, 0}, {1});
  };
  const Write fence = emits(Instr::fence_async), barrier = emits(Instr::block_barrier),
              commit = emits(Instr::tma_store_commit), wait = emits(Instr::tma_store_wait, {}, {0});
  keeps(with(with(write, fence), with(with(barrier, store), with(commit, wait))));
  breaks(with(write, with(with(barrier, store), with(commit, wait))),
         "tile is read by the async proxy with no fence_async behind its writes: tma_store<1>(");
  breaks(with(with(write, fence), with(store, with(commit, wait))),
         "tile is read with no barrier behind its writes: tma_store<1>(");
  breaks(with(with(write, fence), with(with(barrier, store), wait)),
         "stores by TMA are waited for that are not committed: tma_store_wait<0>();");
  breaks(with(with(write, fence), with(with(barrier, store), commit)),
         "stores by TMA are under way when the kernel ends");
  breaks(
      [](Builder& to, const Names& names) {
        to.emit(Instr::tma_store, {address(names.tile, 0), names.map, 0}, {1});
      },
      "operand 1 is not what its row says: M: tma_store<1>(");
}

void a_barrier_stands_between_writes_and_reads(void**) {
  const Write write = [](Builder& to, const Names& names) {
    to.assign(element(names.tile, thread_index()), literal(1, Scalar::f32));
  };
  keeps(with(write, with(emits(Instr::block_barrier), kRead)));
  breaks(with(write, kRead), "tile is read with no barrier behind its writes: y[");
  // The next iteration reads what this one wrote.
  auto loop = [&](const Write& body) {
    return [=](Builder& to, const Names& names) {
      to.rolled(make_variable("i", Scalar::i32), 0, 8, [&](Builder& each) { body(each, names); });
    };
  };
  keeps(loop(with(with(emits(Instr::block_barrier), kRead), with(emits(Instr::block_barrier), write))));
  breaks(loop(with(kRead, with(emits(Instr::block_barrier), write))),
         "tile is read with no barrier behind its writes");
}

void mbarriers_are_initialised_for_all(void**) {
  auto on = [](Instr code) {
    return [=](Builder& to, const Names& names) {
      to.when(equal(thread_index(), 0), [&](Builder& one) {
        one.emit(code,
                 code == Instr::mbarrier_init_fence ? std::vector<Expr>{} : std::vector<Expr>{names.full, 1});
      });
    };
  };
  const Write init = on(Instr::mbarrier_init), fence = on(Instr::mbarrier_init_fence),
              wait = on(Instr::mbarrier_wait);
  keeps(with(with(init, fence), with(emits(Instr::block_barrier), wait)));
  breaks(wait, "the mbarrier full is not initialised: mbarrier_wait(full, 1);");
  breaks(with(with(init, fence), wait), "no barrier tells all threads that the mbarrier full is initialised");
  breaks(with(init, with(emits(Instr::block_barrier), wait)), "no barrier tells all threads");
}

void blocks_that_signal_each_other_begin_and_end_together(void**) {
  const Write init = [](Builder& to, const Names& names) {
    to.when(equal(thread_index(), 0), [&](Builder& one) {
      one.emit(Instr::mbarrier_init, {names.full, 1});
      one.emit(Instr::mbarrier_init_fence);
    });
  };
  const Write arrive = [](Builder& to, const Names& names) {
    to.emit(Instr::mbarrier_arrive_at, {names.full, Expr(names.lane) % 2});
  };
  const Write copy = [](Builder& to, const Names& names) {
    to.emit(Instr::tma_load_multicast, {address(names.tile, 0), names.map, names.full, 3, 0}, {1});
  };
  const Write wait = [](Builder& to, const Names& names) { to.emit(Instr::mbarrier_wait, {names.full, 0}); };
  const Write meet = emits(Instr::cluster_barrier);
  for (const Write& signal : {arrive, copy}) {
    keeps(with(init, with(with(meet, signal), with(wait, meet))));
    breaks(with(init, with(with(emits(Instr::block_barrier), signal), with(wait, meet))),
           "no barrier tells other blocks of the cluster that the mbarrier full is initialised");
    breaks(with(init, with(with(meet, signal), wait)),
           "other blocks of the cluster are signalled when the kernel ends");
  }
  breaks(with(init, with(with(meet, copy), with(kRead, meet))),
         "tile is read before the copies into it are waited for");
}

void products_are_committed_and_waited_for(void**) {
  const Write product = [](Builder& to, const Names& names) {
    const Symbol sums = make_registers("sums", Scalar::f32, 8);
    to.declare(sums, true);
    const Expr operand =
        call(Function::shared_operand, Scalar::byte, {address(names.tile, 0)}, {128, false, 0, 1024});
    to.emit(Instr::wgmma_shared, {address(sums, 0), operand, operand}, {Scalar::f16, 16});
  };
  const Write commit = emits(Instr::wgmma_commit), wait = emits(Instr::wgmma_wait, {}, {0});
  keeps(with(product, with(commit, wait)));
  breaks(with(product, wait), "products are waited for that are not committed: wgmma_wait<0>();");
  breaks(with(product, commit), "products are under way when the kernel ends");
  const Write write = [](Builder& to, const Names& names) {
    to.assign(element(names.tile, thread_index()), literal(1, Scalar::f32));
  };
  const Write barrier = emits(Instr::block_barrier), multiply = with(product, with(commit, wait));
  keeps(with(with(write, emits(Instr::fence_async)), with(barrier, multiply)));
  breaks(with(write, with(barrier, multiply)),
         "tile is read by the async proxy with no fence_async behind its writes: wgmma<");
}

}  // namespace
}  // namespace quern::ir

int main() {
  using namespace quern::ir;
  const CMUnitTest tests[] = {
      cmocka_unit_test(names_are_defined_once_and_before_their_uses),
      cmocka_unit_test(only_what_may_be_written_is),
      cmocka_unit_test(operands_are_what_the_row_says),
      cmocka_unit_test(registers_are_counted_through_loops),
      cmocka_unit_test(all_threads_come_to_a_barrier),
      cmocka_unit_test(what_is_broadcast_is_the_same_in_all_lanes),
      cmocka_unit_test(named_barriers_count_who_comes),
      cmocka_unit_test(copies_are_committed_and_waited_for),
      cmocka_unit_test(stores_by_tma_are_fenced_and_waited_for),
      cmocka_unit_test(a_barrier_stands_between_writes_and_reads),
      cmocka_unit_test(mbarriers_are_initialised_for_all),
      cmocka_unit_test(blocks_that_signal_each_other_begin_and_end_together),
      cmocka_unit_test(products_are_committed_and_waited_for),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
