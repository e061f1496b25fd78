// What small kernels are counted to do, each number by hand.
#include "core/kernel/count.h"

#include "core/kernel/builder.h"
#include "tests/support/test.h"

namespace quern::ir {
namespace {

struct Sample {
  Symbol in = make_memory("in", Space::global, Scalar::f16),
         out = make_memory("out", Space::global, Scalar::f16, true),
         tile = make_memory("tile", Space::shared, Scalar::f16), x = make_registers("x", Scalar::u32, 4),
         sum = make_registers("sum", Scalar::f32, 4);
  Kernel kernel;
  LaunchFacts facts;
  Builder to{kernel.body};

  explicit Sample(int threads = 64) {
    kernel.name = "sample";
    kernel.threads = threads;
    kernel.parameters = {{in}, {out}};
    facts.parameters.resize(2);
  }
  Counts count(int64_t block = 0) const { return count_block(kernel, facts, {block, 0, 0}); }
};

void is_access(const Counts& counts, Path path, int64_t width, double accesses, double instructions,
               double moved) {
  const auto at = counts.of(path).find(width);
  assert_true(at != counts.of(path).end());
  assert_float_equal(at->second.accesses, accesses, 1e-9);
  assert_float_equal(at->second.instructions, instructions, 1e-9);
  assert_float_equal(at->second.moved, moved, 1e-9);
}

// 40 of 64 threads load 16 bytes in each of three trips, but in the last one, where it is the half of them.
void predicates_and_trips_are_counted(void**) {
  Sample sample;
  const Symbol i = make_variable("i", Scalar::i32);
  sample.to.rolled(i, 0, 3, [&](Builder& each) {
    each.when(less(thread_index(), 40), [&](Builder& some) {
      some.emit(Instr::load_global,
                {address(sample.x, 0), address(sample.in, thread_index() * 8),
                 less(thread_index() + Expr(i) * 10, 40)},
                {Scalar::f16, 8, true});
    });
  });
  // 40, 30 and 20 threads, of two warps, of one and of one.
  is_access(sample.count(), Path::global_load, 16, 90, 4, 45);
}

// Rows of 64 bytes: lanes are two to a row of banks, so that sixteen words meet in a bank; swizzled, none do.
void wavefronts_are_those_of_banks(void**) {
  for (const bool swizzle : {false, true}) {
    Sample sample(32);
    Expr at = thread_index() * 64;
    if (swizzle) at = call(Function::swizzled, Scalar::i32, {at}, {TemplateArg(56)});
    sample.to.emit(Instr::ldmatrix, {address(sample.x, 0), address(sample.tile, at)}, {4});
    is_access(sample.count(), Path::ldmatrix, 16, 32, 1, swizzle ? 4 : 32);
  }
  Sample stored(32);
  stored.to.emit(Instr::stmatrix, {address(stored.tile, thread_index() * 8), stored.x}, {Scalar::f16, 8});
  is_access(stored.count(), Path::shared_store, 16, 32, 1, 4);
  Sample row(32);
  row.to.emit(Instr::load_shared_or_zero,
              {address(row.x, 0), address(row.tile, thread_index() * 4), truth(true)}, {Scalar::f16, 4});
  is_access(row.count(), Path::shared_load, 8, 32, 1, 2);
}

// A warp brings what two others multiply, a stage an iteration; the next iteration has the same names as this
// one.
void roles_do_their_own(void**) {
  Sample sample(96);
  const Symbol map = make_memory("map", Space::tensor_map, Scalar::tensor_map),
               full = make_memory("full", Space::shared, Scalar::mbarrier),
               i = make_variable("i", Scalar::i32);
  sample.kernel.parameters.push_back({map});
  sample.facts.parameters.resize(3);
  TensorMap box;
  box.dtype = DType::f16;
  box.shape = {256, 256};
  box.strides = {256, 1};
  box.box = {16, 64};
  sample.facts.parameters[2].map = box;
  WarpRole producer{"producer", 2, {}};
  Builder bring(producer.body);
  bring.when(equal(call(Function::lane_index, Scalar::i32, {}), 0), [&](Builder& one) {
    one.rolled(i, 0, 100, [&](Builder& each) {
      each.emit(Instr::tma_load, {address(sample.tile, 0), map, address(full, 0), 0, Expr(i) * 64},
                {2, true});
    });
  });
  sample.to.add(producer);
  sample.to.rolled(i, 0, 100, [&](Builder& each) {
    each.emit(Instr::mbarrier_wait, {address(full, 0), 0});
    each.unrolled("k", 4, [&](Builder& step, const Expr&) {
      step.emit(Instr::mma, {address(sample.sum, 0), address(sample.x, 0), address(sample.x, 0)},
                {Scalar::f16, false});
    });
  });
  const Counts counts = sample.count();
  assert_float_equal(counts.tma_loads, 100, 1e-9);
  assert_float_equal(counts.tma_load_bytes, 100 * 16 * 64 * 2, 1e-9);
  assert_float_equal(counts.mma, 2 * 100 * 4, 1e-9);
  assert_float_equal(counts.mma_flops, 2 * 100 * 4 * 4096, 1e-9);
  assert_float_equal(counts.mbarrier_waits, 100, 1e-9);
}

// The loop goes on behind `continue` for those that did not take it; a product and a sum are one instruction.
void arithmetic_is_of_the_threads_that_reach_it(void**) {
  Sample sample;
  const Symbol step = make_variable("step", Scalar::i32);
  const Expr x = element(sample.sum, 0), y = element(sample.sum, 1);
  sample.to.rolled(step, -1, 50, [&](Builder& each) {
    each.when(less(step, 0), [&](Builder& first) { first.add(Continue{}); });
    each.assign(x, x * y + x);
    each.assign(y, call(Function::exp_fast, Scalar::f32, {y}) * y);
    each.assign(y, call(Function::shuffle_xor, Scalar::f32, {y, 1}));
  });
  const Expr warp = sample.to.let(make_variable("warp", Scalar::i32),
                                  call(Function::broadcast, Scalar::i32, {thread_index() / 32}));
  sample.to.when(equal(warp, 1), [&](Builder& second) { second.add(Return{}); });
  sample.to.emit(Instr::block_barrier);
  sample.to.assign(element(sample.out, thread_index()),
                   call(Function::from_float, Scalar::f16, {x}, {Scalar::f16}));
  const Counts counts = sample.count();
  assert_float_equal(counts.simple, 2 * 50 * 2 + 1, 1e-9);
  assert_float_equal(counts.special, 2 * 50, 1e-9);
  assert_float_equal(counts.shuffles, 2 * 50 + 2, 1e-9);
  assert_float_equal(counts.barriers, 1, 1e-9);
  is_access(counts, Path::global_store, 2, 32, 1, 2);
}

// Of three blocks the last one has half of its rows.
void blocks_at_the_edge_do_less(void**) {
  Sample sample;
  sample.facts.grid.x = 3;
  sample.to.emit(Instr::load_global,
                 {address(sample.x, 0), address(sample.in, thread_index() * 2),
                  less(block_index(0) * 64 + thread_index(), 160)},
                 {Scalar::f16, 2, true});
  assert_float_equal(sample.count(0).bytes(Path::global_load), 64 * 4, 1e-9);
  assert_float_equal(sample.count(2).bytes(Path::global_load), 32 * 4, 1e-9);
  assert_float_equal(count_mean_block(sample.kernel, sample.facts).bytes(Path::global_load), 160 * 4 / 3.0,
                     1e-6);
  assert_text_equal(print_counts(sample.count(2)),
                    "  global load of 4 bytes: 1 instructions of warps, 128 bytes, 4 sectors\n");
}

}  // namespace
}  // namespace quern::ir

int main() {
  using namespace quern::ir;
  const CMUnitTest tests[] = {
      cmocka_unit_test(predicates_and_trips_are_counted), cmocka_unit_test(wavefronts_are_those_of_banks),
      cmocka_unit_test(roles_do_their_own), cmocka_unit_test(arithmetic_is_of_the_threads_that_reach_it),
      cmocka_unit_test(blocks_at_the_edge_do_less)};
  return cmocka_run_group_tests_name("kernel-count", tests, nullptr, nullptr);
}
