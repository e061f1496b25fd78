// The kernel IR: expressions, what statements touch, and the CUDA text of each kind of statement.
#include "core/kernel/builder.h"
#include "core/kernel/effects.h"
#include "core/kernel/value.h"
#include "tests/support/test.h"

namespace quern::ir {
namespace {

const Symbol kLane = make_variable("lane", Scalar::i32);

void is_printed(const Expr& expr, const std::string& text) { assert_text_equal(print(expr), text); }

void neutral_operands_disappear(void**) {
  const Expr lane(kLane);
  is_printed(lane + 0, "lane");
  is_printed((lane & 7) * 1 + 0 * lane, "lane & 7");
  is_printed(Expr(3) + 4 * Expr(5), "23");
  is_printed((lane >> 0 & 3) * 8, "(lane & 3) * 8");
  is_printed(both(truth(true), less(lane, 5)), "lane < 5");
  is_printed(both(truth(false), less(lane, 5)), "false");
  is_printed(select(truth(true), lane, lane * 2), "lane");
  assert_true(less(Expr(3), 5).is_number(1));
}

// A reader of C++ would put no others.
void parentheses_stand_where_precedence_wants_them(void**) {
  const Expr lane(kLane);
  is_printed((lane + 1) * 4, "(lane + 1) * 4");
  is_printed(lane * 4 + (lane + 1), "lane * 4 + lane + 1");  // sums of indices are associative
  is_printed(lane - (lane + 1), "lane - (lane + 1)");
  is_printed((lane ^ 3) + 1, "(lane ^ 3) + 1");
  is_printed(lane >> 2 & 7, "lane >> 2 & 7");
  is_printed(both(less(lane, 5), equal(lane & 3, 0)), "lane < 5 && (lane & 3) == 0");
  is_printed(cast(lane, Scalar::i64) * 4, "static_cast<long long>(lane) * 4");
  const Symbol x = make_registers("x", Scalar::f32, 4);
  const Expr a = element(x, 0), b = element(x, 1);
  is_printed(a + (b + a), "x[0] + (x[1] + x[0])");  // sums of floats are not
  is_printed(select(less(a, b), a, b) * b, "(x[0] < x[1] ? x[0] : x[1]) * x[1]");
  is_printed(negate(a) * b, "-x[0] * x[1]");
}

// y[i] = x[i] * 2 of eight elements a thread, through shared memory.
struct Sample {
  Symbol in = make_memory("in", Space::global, Scalar::f16),
         out = make_memory("out", Space::global, Scalar::f16, true),
         tile = make_memory("tile", Space::shared, Scalar::f16), x = make_registers("x", Scalar::u32, 4);
  Body body;

  Sample() {
    Builder to(body);
    const Symbol at = make_pointer("at", in, Scalar::f16);
    to.let(at, address(in, thread_index() * 8));
    to.declare(x);
    to.emit(Instr::load_global, {address(x, 0), address(at, 0), less(kLane, 30)}, {Scalar::f16, 8, true});
    to.unrolled("r", 2, [&](Builder& each, const Expr& r) {
      const Symbol v = make_vector("v", Scalar::f16, 4);
      each.declare(v);
      each.unrolled("j", 4, [&](Builder& one, const Expr& j) {
        const Expr half = call(Function::half_at, Scalar::f16, {x, r * 4 + j}, {Scalar::f16});
        const Expr number = call(Function::to_float, Scalar::f32, {half});
        one.assign(element(v, j), rounded(number * literal(2, Scalar::f32), DType::f16));
      });
      each.emit(Instr::store_shared, {address(tile, r * 4), v}, {Scalar::f16, 4});
    });
    to.emit(Instr::block_barrier);
    to.when(equal(kLane, 0), [&](Builder& first) { first.assign(element(out, 0), element(tile, 3)); });
  }
};

void statements_print_as_cuda(void**) {
  const Sample sample;
  assert_text_equal(print_cuda(sample.body), R"(const f16* const at = in + int(threadIdx.x) * 8;
unsigned x[4];
load_elements<f16, 8, true>(&x[0], at, lane < 30);
#pragma unroll
for (int r = 0; r < 2; ++r) {
  Vector<f16, 4> v;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = from_float<f16>(to_float(half_at<f16>(x, r * 4 + j)) * 2.000000000e+00f);
  }
  store_vector<f16, 4>(tile + r * 4, v);
}
__syncthreads();
if (lane == 0) {
  out[0] = tile[3];
}
)");
}

void statements_say_what_they_touch(void**) {
  const Sample sample;
  const auto read = read_symbols(sample.body, Space::shared),
             written = written_symbols(sample.body, Space::shared);
  assert_true(read == std::set<const SymbolData*>{sample.tile.get()} && written == read);
  // Through a pointer into it.
  assert_true(read_symbols(sample.body, Space::global) == std::set<const SymbolData*>{sample.in.get()});
  assert_true(written_symbols(sample.body, Space::global) == std::set<const SymbolData*>{sample.out.get()});
  assert_true(named_registers(sample.body).contains(sample.x.get()));
  // The load defines its registers and does not read them.
  const Body load(sample.body.begin() + 2, sample.body.begin() + 3);
  assert_true(read_symbols(load, Space::registers).empty());
  assert_true(written_symbols(load, Space::registers) == std::set<const SymbolData*>{sample.x.get()});
}

void a_single_trip_is_no_loop(void**) {
  Body body;
  Builder to(body);
  const Symbol x = make_registers("x", Scalar::f32, 1);
  to.unrolled("r", 1,
              [&](Builder& each, const Expr& r) { each.assign(element(x, r), literal(1, Scalar::f32)); });
  to.unrolled("r", 1, [&](Builder& each, const Expr& r) {
    const Expr old = each.let(make_variable("old", Scalar::f32), element(x, r));
    each.assign(element(x, r), old * old);
  });
  assert_text_equal(print_cuda(body), R"(x[0] = 1.000000000e+00f;
{
  const float old = x[0];
  x[0] = old * old;
}
)");
}

void kernels_have_parameters_and_bounds(void**) {
  const Sample sample;
  Kernel kernel;
  kernel.name = "twice";
  kernel.parameters = {{sample.in, true}, {sample.out, true}};
  kernel.parameters.push_back({make_memory("map0", Space::tensor_map, Scalar::tensor_map), true});
  kernel.threads = 128;
  kernel.min_blocks = 2;
  kernel.setup = {Let{kLane, call(Function::lane_index, Scalar::i32, {})}};
  assert_text_equal(
      print_cuda(kernel),
      "extern \"C\" __global__ void __launch_bounds__(128, 2) twice(const f16* __restrict__ in, f16* "
      "__restrict__ out, const __grid_constant__ TensorMap map0) {\n  const int lane = lane_index();\n}\n");
}

void variables_can_be_replaced(void**) {
  const Expr lane(kLane);
  is_printed(replaced(lane * 4 + 1, kLane, Expr(3)), "13");
  const Symbol i = make_variable("i", Scalar::i32);
  is_printed(replaced(less(lane, Expr(i)), i, Expr(7)), "lane < 7");
}

}  // namespace
}  // namespace quern::ir

int main() {
  using namespace quern::ir;
  const CMUnitTest tests[] = {cmocka_unit_test(neutral_operands_disappear),
                              cmocka_unit_test(parentheses_stand_where_precedence_wants_them),
                              cmocka_unit_test(statements_print_as_cuda),
                              cmocka_unit_test(statements_say_what_they_touch),
                              cmocka_unit_test(a_single_trip_is_no_loop),
                              cmocka_unit_test(kernels_have_parameters_and_bounds),
                              cmocka_unit_test(variables_can_be_replaced)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
