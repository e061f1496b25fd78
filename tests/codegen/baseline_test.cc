// Emitted programs as text: goldens, determinism, one text for equal kernels, sizes that grow with the graph
// and not faster. $QUERN_UPDATE_GOLDEN=1 writes the goldens anew.
#include "core/codegen/baseline.h"

#include <chrono>
#include <cstdlib>

#include "core/graph/builder.h"
#include "core/graph/text.h"
#include "core/kernel/print_ir.h"
#include "tests/codegen/emulated.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

const Target& target() { return **find_target("sm_90a"); }

Emitted emit(const Graph& graph) {
  auto emitted = emit_baseline(graph, target());
  assert_ok(emitted);
  return std::move(*emitted);
}

std::string describe(const Emitted& emitted) {
  std::string text = "// workspace: " + std::to_string(emitted.plan.workspace_bytes) + " bytes\n";
  for (const Launch& launch : emitted.plan.launches) {
    text += "// " + launch.kernel + "<<<" + std::to_string(launch.grid.x) + ", " +
            std::to_string(launch.block.x) + ">>>(";
    for (const LaunchArg& arg : launch.args) {
      const char* kinds[] = {"?", "input", "output", "workspace", "integer"};
      text += (&arg == launch.args.data() ? "" : ", ") + std::string(kinds[static_cast<size_t>(arg.kind)]) +
              " " + std::to_string(arg.value);
    }
    text += ")\n";
  }
  return text + "\n" + emitted.kernels;
}

void check_text(const std::filesystem::path& golden, const std::string& text) {
  if (std::getenv("QUERN_UPDATE_GOLDEN")) write_test_file(golden, text);
  assert_text_equal(text, read_test_file(golden));
}

void check_golden(const std::string& name) {
  const auto folder = test_root() / "tests/golden/codegen";
  const Emitted emitted = emit(test_graph(read_test_file(folder / (name + ".qg"))));
  std::string ir;
  for (const LaunchedKernel& each : emitted.code) ir += (ir.empty() ? "" : "\n") + print_ir(each.kernel);
  check_text(folder / (name + ".cu"), describe(emitted));
  check_text(folder / (name + ".ir"), ir);
}

void texts_are_golden(void**) {
  for (const char* name : {"points", "norm", "gated", "movement"}) check_golden(name);
}

// Neighbours are told apart by a reshape and slices: to move what has been cast costs less than to store it.
void rotations_of_neighbours_are_one_kernel(void**) {
  const Emitted emitted = emit(test_graph(
      "graph g\nin q: bf16[64, 16, 64]\nin c: f32[64, 1, 32]\nin s: f32[64, 1, 32]\nf = cast(q, dtype=f32)\n"
      "p = reshape(f, shape=[64, 16, 32, 2])\na1 = slice(p, start=[0, 0, 0, 0], stop=[64, 16, 32, 1])\n"
      "b1 = slice(p, start=[0, 0, 0, 1], stop=[64, 16, 32, 2])\na = reshape(a1, shape=[64, 16, 32])\n"
      "b = reshape(b1, shape=[64, 16, 32])\nac = mul(a, c)\nbs = mul(b, s)\nas = mul(a, s)\nbc = mul(b, c)\n"
      "x = sub(ac, bs)\ny = add(as, bc)\nx1 = reshape(x, shape=[64, 16, 32, 1])\n"
      "y1 = reshape(y, shape=[64, 16, 32, 1])\nz = concat(x1, y1, axis=-1)\nr = reshape(z, shape=[64, 16, "
      "64])\n"
      "o = cast(r, dtype=bf16)\nout o\n"));
  assert_int_equal(emitted.plan.launches.size(), 1);
  assert_int_equal(emitted.plan.workspace_bytes, 0);
}

void equal_graphs_give_equal_bytes(void**) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Emitted a = emit(random_graph(seed)), b = emit(random_graph(seed));
    assert_true(a.source == b.source);
    assert_true(a.plan == b.plan);
  }
}

void equal_kernels_have_one_text(void**) {
  const Emitted emitted =
      emit(test_graph("graph g\nin x: f16[64, 64]\nin v: f16[64, 64]\nin w: f16[64, 64]\na = matmul(x, v)\nb "
                      "= matmul(x, w)\nout a, b\n"));
  assert_int_equal(emitted.plan.launches.size(), 2);
  assert_text_equal(emitted.plan.launches[0].kernel, emitted.plan.launches[1].kernel);
  assert_false(emitted.plan.launches[0].args == emitted.plan.launches[1].args);
}

// A graph made by `steps` calls of step(builder, value), each of which gives the next value.
template <class Step>
Graph grow(int steps, Ints shape, Step step) {
  GraphBuilder builder;
  ValueId value = *builder.add_input("x", DType::f16, std::move(shape));
  for (int i = 0; i < steps; ++i) value = step(builder, value, i);
  assert_ok(builder.add_output(value));
  return std::move(*builder.finish());
}

ValueId op(GraphBuilder& builder, OpCode code, std::vector<ValueId> operands, Attrs attrs = {}) {
  auto id = builder.add_op(code, operands, std::move(attrs));
  assert_ok(id);
  return *id;
}

ValueId transpose(GraphBuilder& b, ValueId x) { return op(b, OpCode::transpose, {x}); }

ValueId slice(GraphBuilder& b, ValueId x, int64_t start, int64_t stop) {
  Attrs attrs;
  attrs.start = Ints{start, start};
  attrs.stop = Ints{stop, stop};
  return op(b, OpCode::slice, {x}, attrs);
}

ValueId reshape(GraphBuilder& b, ValueId x, Ints shape) {
  Attrs attrs;
  attrs.shape = std::move(shape);
  return op(b, OpCode::reshape, {x}, attrs);
}

struct Ladder {
  const char* name;
  Ints shape;
  ValueId (*step)(GraphBuilder&, ValueId, int);
  int ops_a_step;
};

// Shapes of graphs in which inlining without care would repeat work exponentially or quadratically.
const Ladder kLadders[] = {
    {"chain", {8, 8}, [](GraphBuilder& b, ValueId x, int) { return op(b, OpCode::exp, {x}); }, 1},
    {"diamonds",
     {8, 8},
     [](GraphBuilder& b, ValueId x, int) {
       return op(b, OpCode::add, {x, x});
     },
     1},
    {"transposed diamonds",
     {8, 8},
     [](GraphBuilder& b, ValueId x, int) {
       return op(b, OpCode::add, {x, transpose(b, x)});
     },
     2},
    {"shifted diamonds",
     {4100, 4100},
     [](GraphBuilder& b, ValueId x, int i) {
       const int64_t extent = 4100 - i;
       return op(b, OpCode::add, {slice(b, x, 0, extent - 1), slice(b, x, 1, extent)});
     },
     3},
    {"reshapes and transposes",
     {30, 77},
     [](GraphBuilder& b, ValueId x, int i) {
       return transpose(b, reshape(b, x,
                                   i % 3 == 0   ? Ints{42, 55}
                                   : i % 3 == 1 ? Ints{35, 66}
                                                : Ints{30, 77}));
     },
     2},
    {"transposes", {6, 7}, [](GraphBuilder& b, ValueId x, int) { return transpose(b, x); }, 1},
    {"outputs all along",
     {8, 8},
     [](GraphBuilder& b, ValueId x, int) {
       const ValueId y = op(b, OpCode::tanh, {x});
       assert_ok(b.add_output(y));
       return y;
     },
     1},
    {"softmaxes", {8, 64}, [](GraphBuilder& b, ValueId x, int) { return op(b, OpCode::softmax, {x}); }, 5},
    {"softmaxes both ways",
     {8, 64},
     [](GraphBuilder& b, ValueId x, int) { return op(b, OpCode::softmax, {transpose(b, x)}); },
     6},
    {"products",
     {16, 16},
     [](GraphBuilder& b, ValueId x, int) {
       return op(b, OpCode::matmul, {x, transpose(b, x)});
     },
     2},
    {"concats of slices",
     {64, 64},
     [](GraphBuilder& b, ValueId x, int) {
       Attrs attrs;
       attrs.axis = Ints{0};
       const ValueId both = op(b, OpCode::concat, {slice(b, x, 0, 64), x}, attrs);
       Attrs step;
       step.step = Ints{2, 1};
       return op(b, OpCode::slice, {both}, step);
     },
     3},
};

void text_is_linear_in_the_graph(void**) {
  for (const Ladder& ladder : kLadders) {
    const int most = 3900 / ladder.ops_a_step;
    size_t bytes_a_step[2];
    for (int large : {0, 1}) {
      const int steps = large ? most : most / 8;
      const auto start = std::chrono::steady_clock::now();
      const Emitted emitted = emit(grow(steps, ladder.shape, ladder.step));
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      bytes_a_step[large] = emitted.kernels.size() / static_cast<size_t>(steps);
      print_message("%-24s %5d steps: %6zu bytes a step, %5zu launches, %6.0f ms\n", ladder.name, steps,
                    bytes_a_step[large], emitted.plan.launches.size(), seconds * 1e3);
      assert_true(bytes_a_step[large] < 4000);
    }
    assert_true(bytes_a_step[1] < 2 * bytes_a_step[0] + 200);
  }
}

// A launch has room for 4 KiB of parameters on every driver.
void many_outputs_take_many_launches(void**) {
  GraphBuilder builder;
  const ValueId x = *builder.add_input("x", DType::f16, {5});
  const ValueId y = op(builder, OpCode::exp, {x});
  for (int i = 0; i < 3000; ++i) assert_ok(builder.add_output(i % 2 ? x : y));
  const Emitted emitted = emit(*builder.finish());
  for (const Launch& launch : emitted.plan.launches) assert_true(launch.args.size() <= 500);
}

void wide_concats_are_linear(void**) {
  GraphBuilder builder;
  std::vector<ValueId> level;
  for (int i = 0; i < 64; ++i)
    level.push_back(*builder.add_input("x" + std::to_string(i), DType::f32, {i + 1, 3}));
  Attrs attrs;
  attrs.axis = Ints{0};
  ValueId all = op(builder, OpCode::concat, level, attrs);
  for (int i = 0; i < 3; ++i) all = op(builder, OpCode::concat, std::vector<ValueId>(8, all), attrs);
  assert_ok(builder.add_output(all));
  const Emitted emitted = emit(*builder.finish());
  assert_true(emitted.kernels.size() < 100000);
}

// What needs no reduction is stored by the loop that reduces, however often each of its values is used: paths to the input
// double with every operator.
void values_beside_a_reduction_take_one_pass(void**) {
  std::string text = "graph g\nin x: f32[64, 4096]\ny0 = exp(x)\n";
  for (int i = 0; i < 60; ++i) {
    const std::string before = "y" + std::to_string(i);
    text += "y" + std::to_string(i + 1) + " = add(" + before + ", " + before + ")\n";
  }
  const std::string kernels = emit(test_graph(text + "s = sum(y60, axis=1)\nout y60, s\n")).kernels;
  const size_t loop = kernels.find("for (unsigned j");
  assert_true(loop != std::string::npos);
  assert_true(kernels.find("for (unsigned j", loop + 1) == std::string::npos);
  assert_true(kernels.find("cp_async<") == std::string::npos);
}

// Offsets beyond 2^31 are computed in 64 bits, and only those.
void large_tensors_have_wide_indices(void**) {
  const Emitted large = emit(test_graph("graph g\nin x: f16[65536, 65537]\ny = neg(x)\nout y\n"));
  assert_contains(large.kernels, "unsigned long long t");
  const Emitted huge = emit(
      test_graph("graph g\nin x: bool[1048576, 1048576]\ny = transpose(x)\nz = sum(x, axis=1)\nout y, z\n"));
  assert_contains(huge.kernels, "unsigned long long");
  for (const Launch& launch : huge.plan.launches)
    assert_true(launch.grid.x <= 0x7fffffff && launch.grid.y <= 65535);
  const Emitted small = emit(test_graph("graph g\nin x: f16[32768, 32768]\ny = neg(x)\nout y\n"));
  assert_true(small.kernels.find("long long") == std::string::npos);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(texts_are_golden),
                              cmocka_unit_test(rotations_of_neighbours_are_one_kernel),
                              cmocka_unit_test(equal_graphs_give_equal_bytes),
                              cmocka_unit_test(equal_kernels_have_one_text),
                              cmocka_unit_test(text_is_linear_in_the_graph),
                              cmocka_unit_test(wide_concats_are_linear),
                              cmocka_unit_test(many_outputs_take_many_launches),
                              cmocka_unit_test(values_beside_a_reduction_take_one_pass),
                              cmocka_unit_test(large_tensors_have_wide_indices)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
