// The float reference: operators against definitions written out here, buffers with strides, and tolerances
// that tell right from wrong.
#include "core/verify/reference.h"

#include <cmath>

#include "core/graph/text.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

using namespace quern;

static std::vector<RealTensor> run(const std::string& body, const std::vector<RealTensor>& inputs) {
  const Result<Graph> graph = parse_graph("graph g\n" + body);
  assert_ok(graph);
  return evaluate_reference(*graph, inputs);
}

static void assert_elements(const RealTensor& actual, const RealTensor& expected) {
  assert_int_equal(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    if (!(std::fabs(actual[i] - expected[i]) <= 1e-12) && actual[i] != expected[i])
      fail_test("element " + std::to_string(i) + ": " + std::to_string(actual[i]) + " instead of " +
                std::to_string(expected[i]));
}

static void movement(void**) {
  const RealTensor x = {1, 2, 3, 4, 5, 6};
  assert_elements(run("in x: f32[2, 3]\ny = transpose(x)\nout y\n", {x})[0], {1, 4, 2, 5, 3, 6});
  assert_elements(run("in x: f32[2, 3]\ny = reshape(x, shape=[3, 2])\nz = transpose(y)\nout z\n", {x})[0],
                  {1, 3, 5, 2, 4, 6});
  assert_elements(run("in x: f32[6]\ny = slice(x, start=[1], step=[2])\nout y\n", {x})[0], {2, 4, 6});
  assert_elements(run("in x: f32[2, 3]\ny = slice(x, start=[0, -2])\nout y\n", {x})[0], {2, 3, 5, 6});
  assert_elements(run("in x: f32[2, 3]\ny = concat(x, x, axis=1)\nout y\n", {x})[0],
                  {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  assert_elements(run("in x: f32[2]\ny = broadcast(x, shape=[3, 2])\nout y\n", {{7, 8}})[0],
                  {7, 8, 7, 8, 7, 8});
  assert_elements(run("y = iota(shape=[2, 3], axis=1)\nout y\n", {})[0], {0, 1, 2, 0, 1, 2});
}

static void reductions(void**) {
  const RealTensor x = {1, -2, 3, 4, 5, -6};
  assert_elements(run("in x: f32[2, 3]\ny = sum(x, axis=0)\nout y\n", {x})[0], {5, 3, -3});
  assert_elements(run("in x: f32[2, 3]\ny = max(x, axis=1)\nout y\n", {x})[0], {3, 5});
  assert_elements(run("in x: f32[2, 3]\ny = mean(x)\nout y\n", {x})[0], {5.0 / 6});
  assert_elements(run("in x: f32[2, 0]\ny = sum(x, axis=1)\nz = max(x, axis=1)\nout y, z\n", {{}})[1],
                  {-INFINITY, -INFINITY});
  assert_elements(run("in x: i32[0]\ny = max(x)\nout y\n", {{}})[0], {-2147483648.0});
  assert_elements(run("in x: i32[2]\ny = sum(x)\nout y\n", {{2147483647, 1}})[0], {-2147483648.0});
}

static void matmul(void**) {
  const RealTensor a = {1, 2, 3, 4, 5, 6}, b = {1, 0, 2, 1, 0, 3};
  assert_elements(run("in a: f32[2, 3]\nin b: f32[3, 2]\nc = matmul(a, b)\nout c\n", {a, b})[0],
                  {5, 11, 14, 23});
  assert_elements(run("in a: f32[3]\nin b: f32[3, 2]\nc = matmul(a, b)\nout c\n", {{1, 2, 3}, b})[0],
                  {5, 11});
  assert_elements(run("in a: f32[2, 3]\nin b: f32[3]\nc = matmul(a, b)\nout c\n", {a, {1, 1, 1}})[0],
                  {6, 15});
  assert_elements(run("in a: f32[2, 1, 3]\nin b: f32[3, 1]\nc = matmul(a, b)\nout c\n", {a, {1, 2, 3}})[0],
                  {14, 32});
  // batch of b broadcasts over that of a
  assert_elements(run("in a: f32[2, 1, 1]\nin b: f32[3, 1, 1]\n d = reshape(b, shape=[1, 3, 1, 1])\ne = "
                      "reshape(a, shape=[2, 1, 1, 1])\nc = matmul(e, d)\nout c\n",
                      {{1, 10}, {1, 2, 3}})[0],
                  {1, 2, 3, 10, 20, 30});
  assert_elements(run("in a: f32[2, 0]\nin b: f32[0, 1]\nc = matmul(a, b)\nout c\n", {{}, {}})[0], {0, 0});
  assert_elements(run("in a: i32[1, 1]\nc = matmul(a, a)\nout c\n", {{65537}})[0], {131073});
}

static void composites(void**) {
  const RealTensor x = {1, 2, 3, -1};
  RealTensor softmax, rms, layer;
  double sum = 0, squares = 0, mean = 0;
  for (double v : x) sum += std::exp(v), squares += v * v / 4, mean += v / 4;
  double variance = 0;
  for (double v : x) variance += (v - mean) * (v - mean) / 4;
  for (size_t i = 0; i < 4; ++i) {
    softmax.push_back(std::exp(x[i]) / sum);
    rms.push_back(x[i] / std::sqrt(squares + 0.5) * static_cast<double>(i));
    layer.push_back((x[i] - mean) / std::sqrt(variance + 0.5) * static_cast<double>(i) + 10);
  }
  assert_elements(run("in x: f32[4]\ny = softmax(x)\nout y\n", {x})[0], softmax);
  assert_elements(
      run("in x: f32[1, 4]\nin w: f32[4]\ny = rms_norm(x, w, eps=0.5)\nout y\n", {x, {0, 1, 2, 3}})[0], rms);
  assert_elements(run("in x: f32[4]\nin w: f32[4]\nin b: f32[4]\ny = layer_norm(x, w, b, eps=0.5)\nout y\n",
                      {x, {0, 1, 2, 3}, {10, 10, 10, 10}})[0],
                  layer);
  // shifted: no overflow
  assert_elements(run("in x: f32[2]\ny = softmax(x)\nout y\n", {{1e300, 1e300}})[0], {0.5, 0.5});
}

static void casts_round(void**) {
  assert_elements(run("in x: f32[2]\ny = cast(x, dtype=f16)\nout y\n", {{1.0004, 70000}})[0],
                  {1.0, INFINITY});
  assert_elements(
      run("in x: f32[3]\ny = cast(x, dtype=i32)\nz = cast(x, dtype=bool)\nout y, z\n", {{2.7, -2.7, 0}})[0],
      {2, -2, 0});
  // in between nothing else rounds
  assert_elements(run("in x: f16[1]\ny = mul(x, 0.1)\nz = mul(y, 10.0)\nout z\n", {{1}})[0], {0.1 * 10.0});
}

static void buffers_have_strides(void**) {
  const TensorDesc desc{"x", DType::f16, {2, 3}, {1, 4}};
  const RealTensor elements = {1, 2, 3, 4, 5, 6};
  const std::string buffer = write_buffer(desc, elements);
  assert_int_equal(buffer.size(), 10 * 2);
  assert_elements(read_buffer(desc, buffer.data()), elements);
  assert_true(load_element(buffer.data(), DType::f16, 4) == 2);
  const TensorDesc repeated{"x", DType::i32, {3, 2}, {0, 1}};
  const std::string random = random_buffer(repeated, 5);
  const RealTensor rows = read_buffer(repeated, random.data());
  assert_true(rows[0] == rows[2] && rows[1] == rows[5]);
}

// The unfused program itself, rounding to nearest, is always acceptable; a slightly wrong one is not.
static void tolerances_tell_right_from_wrong(void**) {
  int outputs = 0, noticed = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = random_graph(seed, {.max_elements = 512});
    std::vector<RealTensor> inputs;
    for (const TensorDesc& desc : graph.input_descs())
      inputs.push_back(read_buffer(desc, random_buffer(desc, seed * 31 + inputs.size()).data()));
    const auto reference = evaluate_reference(graph, inputs);
    const auto tolerance = unfused_tolerance(graph, inputs, reference, seed);
    const auto descs = graph.output_descs();
    for (size_t i = 0; i < descs.size(); ++i) {
      RealTensor rounded;
      for (double v : reference[i]) rounded.push_back(round_to(descs[i].dtype, v));
      const Comparison right = compare(descs[i], rounded, reference[i], tolerance[i]);
      if (!right.acceptable)
        fail_test("seed " + std::to_string(seed) + " output " + std::to_string(i) + ": " + right.what);
      if (rounded.empty()) continue;
      ++outputs;
      for (double& v : rounded) v = std::isfinite(v) ? v * 1.1 + 0.25 : v;
      noticed += !compare(descs[i], rounded, reference[i], tolerance[i]).acceptable;
    }
  }
  assert_true(outputs > 200);
  assert_true(noticed >= outputs * 95 / 100);
}

// A product whose operands are rounded as the policy says is acceptable, and one that is rounded to four
// bits less is not.
static void tolerances_allow_tf32_where_it_is_allowed(void**) {
  const auto graph = parse_graph("graph g\nin x: f32[8, 64]\nin w: f32[64, 16]\ny = matmul(x, w)\nout y\n");
  assert_ok(graph);
  std::vector<RealTensor> inputs;
  for (const TensorDesc& desc : graph->input_descs())
    inputs.push_back(read_buffer(desc, random_buffer(desc, 7 + inputs.size()).data()));
  const auto reference = evaluate_reference(*graph, inputs);
  auto is_right = [&](int mantissa_bits, bool tf32) {
    std::vector<RealTensor> rounded = inputs;
    for (RealTensor& input : rounded)
      for (double& v : input) {
        int exponent = 0;
        const double fraction = std::frexp(v, &exponent);
        v = std::ldexp(std::round(std::ldexp(fraction, mantissa_bits + 1)), exponent - mantissa_bits - 1);
      }
    return compare(graph->output_descs()[0], evaluate_reference(*graph, rounded)[0], reference[0],
                   unfused_tolerance(*graph, inputs, reference, 1, tf32)[0])
        .acceptable;
  };
  assert_true(is_right(23, false));
  assert_false(is_right(10, false));
  assert_true(is_right(10, true));
  assert_false(is_right(6, true));
}

static void special_values_must_meet(void**) {
  const TensorDesc desc{"y", DType::f32, {2}, {1}};
  const Tolerance tolerance{1, {1, 1}};
  assert_true(compare(desc, {NAN, INFINITY}, {NAN, INFINITY}, tolerance).acceptable);
  assert_false(compare(desc, {0, INFINITY}, {NAN, INFINITY}, tolerance).acceptable);
  assert_false(compare(desc, {NAN, -INFINITY}, {NAN, INFINITY}, tolerance).acceptable);
  assert_false(compare(desc, {NAN, 1}, {1, 1}, tolerance).acceptable);
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(movement),
      cmocka_unit_test(reductions),
      cmocka_unit_test(matmul),
      cmocka_unit_test(composites),
      cmocka_unit_test(casts_round),
      cmocka_unit_test(buffers_have_strides),
      cmocka_unit_test(tolerances_tell_right_from_wrong),
      cmocka_unit_test(tolerances_allow_tf32_where_it_is_allowed),
      cmocka_unit_test(special_values_must_meet),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
