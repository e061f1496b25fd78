// The float reference: operators against definitions written out here, buffers with strides, and tolerances
// that tell right from wrong.
#include "core/verify/reference.h"

#include <cmath>

#include "core/base/random.h"
#include "core/graph/decompose.h"
#include "core/graph/text.h"
#include "core/verify/real_domains.h"
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
  assert_elements(run("in x: f32[2, 3]\ny = min(x, axis=1)\nout y\n", {x})[0], {-2, -6});
  assert_elements(run("in x: f32[0]\ny = min(x)\nout y\n", {{}})[0], {INFINITY});
  assert_elements(run("in x: i32[0]\ny = min(x)\nout y\n", {{}})[0], {2147483647.0});
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
  assert_elements(run("in x: f16[1]\ny = mul(x, 1.0004)\nz = mul(y, 1000.0)\nout z\n", {{1.0009765625}})[0],
                  {1.0009765625 * 1000});
  // numbers take the dtype of what they are combined with
  assert_elements(run("in x: f16[1]\ny = mul(x, 0.1)\nz = mul(y, -1e30)\nout y, z\n", {{1}})[0],
                  {0x1.998p-4});
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

static std::vector<RealTensor> random_tensors(const Graph& graph, uint64_t seed) {
  std::vector<RealTensor> inputs;
  for (const TensorDesc& desc : graph.input_descs())
    inputs.push_back(read_buffer(desc, random_buffer(desc, seed * 31 + inputs.size()).data()));
  return inputs;
}

static RealTensor rounded(DType dtype, RealTensor elements) {
  for (double& element : elements) element = round_to(dtype, element);
  return elements;
}

// The reference, rounded, is always acceptable; what is slightly wrong in one element is not.
static void bounds_tell_right_from_wrong(void**) {
  int outputs = 0, noticed = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = random_graph(seed, {.max_elements = 512});
    const auto expected = expect_outputs(graph, random_tensors(graph, seed));
    const auto descs = graph.output_descs();
    for (size_t i = 0; i < descs.size(); ++i) {
      RealTensor right = rounded(descs[i].dtype, expected[i].exact);
      const Comparison comparison = compare(descs[i], right, expected[i]);
      if (!comparison.acceptable)
        fail_test("seed " + std::to_string(seed) + " output " + std::to_string(i) + ": " + comparison.what);
      assert_true(comparison.worst <= 1);
      if (right.empty()) continue;
      ++outputs;
      double& one = right[seed % right.size()];
      one = std::isfinite(one) ? one * 1.02 + 0.02 : 0;
      noticed += !compare(descs[i], right, expected[i]).acceptable;
    }
  }
  assert_true(outputs > 200);
  assert_true(noticed >= outputs * 95 / 100);
}

// A product whose operands are rounded as the policy says is acceptable, and one that is rounded to four
// bits less is not.
static void bounds_allow_tf32_where_it_is_allowed(void**) {
  const auto graph = parse_graph("graph g\nin x: f32[8, 64]\nin w: f32[64, 16]\ny = matmul(x, w)\nout y\n");
  assert_ok(graph);
  const std::vector<RealTensor> inputs = random_tensors(*graph, 7);
  auto is_right = [&](int mantissa_bits, bool tf32) {
    std::vector<RealTensor> coarse = inputs;
    for (RealTensor& input : coarse)
      for (double& v : input) {
        int exponent = 0;
        const double fraction = std::frexp(v, &exponent);
        v = std::ldexp(std::round(std::ldexp(fraction, mantissa_bits + 1)), exponent - mantissa_bits - 1);
      }
    return compare(graph->output_descs()[0], rounded(DType::f32, evaluate_reference(*graph, coarse)[0]),
                   expect_outputs(*graph, inputs, tf32)[0])
        .acceptable;
  };
  assert_true(is_right(23, false));
  assert_false(is_right(10, false));
  assert_true(is_right(10, true));
  assert_false(is_right(6, true));
  // The largest f32 is infinite in tf32.
  std::vector<RealTensor> large = inputs;
  large[1][0] = 0x1.fffffep127;
  for (int64_t row = 0; row < 8; ++row) large[0][static_cast<size_t>(row * 64)] = 0.25;
  assert_true(expect_outputs(*graph, large, false)[0].demand[0] == Demand::close);
  assert_true(expect_outputs(*graph, large, true)[0].demand[0] == Demand::close_if_finite);
}

// What a kernel that writes `actual` is told about one output of a graph.
static bool accepts(const std::string& body, const std::vector<RealTensor>& inputs,
                    const RealTensor& actual) {
  const auto graph = parse_graph("graph g\n" + body);
  assert_ok(graph);
  return compare(graph->output_descs()[0], actual, expect_outputs(*graph, inputs)[0]).acceptable;
}

// Right rows of 1e6 and of 1, side by side: an error that the large row may have is wrong in the small one.
static void small_rows_have_bounds_of_their_own(void**) {
  const std::string body = "in x: f32[2, 64]\nin w: f32[64]\ny = matmul(x, w)\nout y\n";
  const auto graph = parse_graph("graph g\n" + body);
  assert_ok(graph);
  std::vector<RealTensor> inputs = random_tensors(*graph, 3);
  for (size_t i = 0; i < 64; ++i) inputs[0][i] = round_to(DType::f32, inputs[0][i] * 1e6);
  const Expected expected = expect_outputs(*graph, inputs)[0];
  const RealTensor right = rounded(DType::f32, expected.exact);
  assert_true(accepts(body, inputs, right));
  // The unfused program, which sums in f32, in order.
  for (size_t row = 0; row < 2; ++row) {
    float sum = 0;
    for (size_t k = 0; k < 64; ++k)
      sum += static_cast<float>(inputs[0][row * 64 + k]) * static_cast<float>(inputs[1][k]);
    RealTensor unfused = right;
    unfused[row] = sum;
    assert_true(accepts(body, inputs, unfused));
    assert_true(expected.bound[row] < 64 * 64 * 0x1p-24 * (row == 0 ? 1e6 : 1));
  }
  for (double wrong : {1e-4, -1e-4}) {
    assert_true(accepts(body, inputs, {right[0] + wrong, right[1]}));
    assert_false(accepts(body, inputs, {right[0], right[1] + wrong}));
  }
}

// A kernel that rounds every intermediate value up or down as it pleases, and functions by two units of f32:
// the unfused program in another order, with another library. `coarseness` 1 is a right one.
class LooseDomain : public RealDomain {
 public:
  LooseDomain(uint64_t seed, double coarseness) : random_(seed), coarseness_(coarseness) {}

  double apply(OpCode code, DType compute, const double* operands) {
    return move(RealDomain::apply(code, compute, operands), is_float(compute) ? 0x1p-22 : 0);
  }
  double add(double a, double b, DType dtype) {
    return move(RealDomain::add(a, b, dtype), is_float(dtype) ? 0x1p-24 : 0);
  }
  double finish(double value, const Node& node) {
    const OpKind kind = op_info(node.code).kind;
    const bool computed =
        kind == OpKind::elementwise || kind == OpKind::contraction || kind == OpKind::reduction;
    return computed && node.type.dtype == DType::f16 ? move(value, 0x1p-11) : value;
  }

 private:
  double move(double value, double relative) {
    return value * (1 + coarseness_ * relative * random_.symmetric());
  }
  Random random_;
  const double coarseness_;
};

// Every element of many draws is within its bound, and few are when the noise is twenty times as large.
static void bounds_fit_the_noise(void**) {
  size_t elements = 0, inside = 0;
  double worst = 0;
  for (const char* dtype : {"f16", "f32"}) {
    const std::string type = dtype;
    const auto graph = parse_graph(
        "graph g\nin x: " + type + "[64, 32]\nin w: " + type + "[32, 64]\ns = matmul(x, w)\n" +
        "e = mul(s, 0.3)\np = softmax(e)\nt = matmul(p, x)\nn = layer_norm(t)\no = silu(n)\nout o, t\n");
    assert_ok(graph);
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const std::vector<RealTensor> inputs = random_tensors(*graph, seed);
      const std::vector<Expected> expected = expect_outputs(*graph, inputs);
      LooseDomain right(seed, 1), coarse(seed, 20);
      const auto rights = evaluate(decompose(*graph), right, inputs),
                 coarses = evaluate(decompose(*graph), coarse, inputs);
      for (size_t output = 0; output < 2; ++output) {
        const TensorDesc desc = graph->output_descs()[output];
        const Comparison result = compare(desc, rounded(desc.dtype, rights[output]), expected[output]);
        if (!result.acceptable) fail_test(type + " " + result.what);
        worst = std::max(worst, result.worst);
        elements += rights[output].size();
        for (size_t i = 0; i < rights[output].size(); ++i)
          inside += std::fabs(coarses[output][i] - expected[output].exact[i]) <= expected[output].bound[i];
      }
    }
  }
  print_message("%zu elements, largest share of a bound %.3f, within with 20 times the noise %.3f\n",
                elements, worst, static_cast<double>(inside) / static_cast<double>(elements));
  assert_true(worst > 0.5);
  assert_true(inside < elements * 2 / 3);
}

// One after the other they are what they are together.
static void single_elements_are_those_of_the_whole(void**) {
  for (const char* text : {"graph a\nin q: f16[2, 3, 8]\nin k: f16[2, 8, 5]\nin v: f16[2, 5, 4]\ns = "
                           "matmul(q, k)\np = softmax(s)\n"
                           "o = matmul(p, v)\nout o, s\n",
                           "graph b\nin x: f32[6, 10]\nin w: f32[10, 7]\nn = rms_norm(x)\ny = matmul(n, "
                           "w)\nm = sum(y, axis=0)\nout y, m\n",
                           "graph c\nin a: i32[4, 9]\nin x: bf16[9]\nb = mul(a, a)\nc = lt(x, 0)\nd = "
                           "where(c, b, 3)\ne = sum(d, axis=1)\n"
                           "out e, d\n"}) {
    const auto graph = parse_graph(text);
    assert_ok(graph);
    std::vector<RealTensor> inputs;
    for (const TensorDesc& desc : graph->input_descs())
      inputs.push_back(read_buffer(desc, random_buffer(desc, inputs.size() + 1).data()));
    for (const bool tf32 : {false, true}) {
      const std::vector<Expected> all = expect_outputs(*graph, inputs, tf32);
      std::vector<std::vector<int64_t>> elements;
      for (const Expected& output : all) {
        elements.emplace_back();
        for (int64_t i = static_cast<int64_t>(output.exact.size()); i-- > 0;)
          if (i % 3 != 1) elements.back().push_back(i);
      }
      std::vector<std::vector<int64_t>> computed = elements;
      const std::vector<Expected> some =
          expect_elements(*graph, inputs, computed, tf32, [] { return false; });
      assert_true(computed == elements);
      for (size_t o = 0; o < all.size(); ++o)
        for (size_t i = 0; i < elements[o].size(); ++i) {
          const size_t at = static_cast<size_t>(elements[o][i]);
          assert_true(some[o].exact[i] == all[o].exact[at]);
          assert_true(some[o].bound[i] == all[o].bound[at]);
          assert_true(some[o].demand[i] == all[o].demand[at]);
        }
      const std::vector<Expected> first =
          expect_elements(*graph, inputs, computed, tf32, [] { return true; });
      assert_int_equal(computed[0].size(), 1);
      assert_int_equal(first[1].exact.size(), 1);
    }
  }
}

static void infinities_and_nan(void**) {
  const std::string inputs_and = "in x: f16[1]\nin y: f16[1]\n";
  const auto takes = [&](const std::string& body, double x, double y, double actual) {
    return accepts(inputs_and + body + "out z\n", {{x}, {y}}, {actual});
  };
  // Finite and finite: NaN is wrong, an infinity too.
  assert_true(takes("z = add(x, y)\n", 1, 2, 3));
  assert_false(takes("z = add(x, y)\n", 1, 2, NAN));
  assert_false(takes("z = add(x, y)\n", 1, 2, INFINITY));
  // Overflow of the output: an infinity, not the largest number, and of the right sign.
  assert_true(takes("z = mul(x, y)\n", 300, -300, -INFINITY));
  assert_false(takes("z = mul(x, y)\n", 300, -300, INFINITY));
  assert_false(takes("z = mul(x, y)\n", 300, -300, -65504));
  assert_false(takes("z = mul(x, y)\n", 300, -300, NAN));
  // On the brink either will do: 65519 rounds to 65504, 65520 to infinity.
  assert_true(takes("z = add(x, y)\n", 65504, 15.9921875, INFINITY));
  assert_true(takes("z = add(x, y)\n", 65504, 16, 65504));
  assert_false(takes("z = add(x, y)\n", 65504, -1000, INFINITY));
  // A NaN that comes from finite inputs is NaN, a pole is its infinity.
  assert_true(takes("z = div(x, y)\n", 0, 0, NAN));
  assert_false(takes("z = div(x, y)\n", 0, 0, 0));
  assert_false(takes("z = div(x, y)\n", 0, 0, INFINITY));
  assert_true(takes("z = div(x, y)\n", -1, 0, -INFINITY));
  assert_false(takes("z = div(x, y)\n", -1, 0, INFINITY));
  assert_false(takes("z = div(x, y)\n", -1, 0, -65504));
  // An input that is not finite: something that is not finite either.
  assert_true(takes("z = sub(x, y)\n", INFINITY, INFINITY, NAN));
  assert_true(takes("z = sub(x, y)\n", INFINITY, INFINITY, INFINITY));
  assert_false(takes("z = sub(x, y)\n", INFINITY, INFINITY, 0));
  assert_false(takes("z = max(x, y)\n", NAN, 1, 1));
  assert_true(takes("z = exp(x)\n", -INFINITY, 1, 0));
  assert_false(takes("z = exp(x)\n", -INFINITY, 1, NAN));
  // The same where a written number is not finite, also because its dtype has no such number.
  assert_true(takes("z = add(x, -1e30)\n", 1, 1, NAN));
  assert_false(takes("z = add(x, -1e30)\n", 1, 1, -65504));
  // An intermediate value of the unfused program overflows: nothing is asked.
  assert_true(takes("a = mul(x, y)\nz = mul(a, 0.001)\n", 300, 300, 90));
  assert_true(takes("a = mul(x, y)\nz = mul(a, 0.001)\n", 300, 300, INFINITY));
  // But what is too large with it is infinite.
  assert_false(takes("a = mul(x, y)\nz = mul(a, 100)\n", 300, 300, -INFINITY));
  // f64 itself overflows: likewise. A shifted softmax is right though the written one is NaN.
  assert_true(takes("a = cast(x, dtype=f32)\ne = exp(a)\nz = div(e, e)\n", 1000, 1, 1));
}

// Rounding may decide a comparison only near its threshold; integers are exact.
static void choices_and_integers(void**) {
  const std::string above = "in x: f16[4]\na = mul(x, 0.1)\nc = lt(a, 0.3)\nout c\n";
  assert_true(accepts(above, {{1, 2.998046875, 3, 4}}, {1, 1, 0, 0}));
  assert_true(accepts(above, {{1, 2.998046875, 3, 4}}, {1, 1, 1, 0}));  // 3 times 0.1 is not 0.3
  assert_false(accepts(above, {{1, 2.998046875, 3, 4}}, {0, 1, 1, 0}));
  assert_false(accepts(above, {{1, 2.998046875, 3, 4}}, {1, 1, 1, 1}));
  const std::string chosen = "in x: f16[4]\na = mul(x, 0.1)\nc = lt(a, 0.3)\nz = where(c, x, 100)\nout z\n";
  assert_true(accepts(chosen, {{1, 2, 3, 4}}, {1, 2, 3, 100}));
  assert_true(accepts(chosen, {{1, 2, 3, 4}}, {1, 2, 100, 100}));
  assert_false(accepts(chosen, {{1, 2, 3, 4}}, {1, 100, 100, 100}));
  const std::string integers = "in x: i32[2]\nin y: f16[2]\nz = mul(x, x)\nout z\n";
  assert_true(accepts(integers, {{65537, 3}, {0, 0}}, {131073, 9}));
  assert_false(accepts(integers, {{65537, 3}, {0, 0}}, {131072, 9}));
  const std::string cast = "in y: f16[2]\na = mul(y, 0.1)\nz = cast(a, dtype=i32)\nout z\n";
  assert_true(accepts(cast, {{30, 35}}, {3, 3}));
  assert_true(accepts(cast, {{30, 35}}, {2, 3}));  // 0.1 is not a number of f16
  assert_false(accepts(cast, {{30, 35}}, {3, 4}));
}

// The maximum of a softmax is one of its scores: their noise is the same and cancels, however large it is.
static void scores_of_ten_thousand_have_a_meaning(void**) {
  const std::string body = "in q: f16[1, 64]\nin k: f16[64, 4]\ns = matmul(q, k)\np = softmax(s)\nout p\n";
  RealTensor q(64, 12.5), k(256, 0);
  for (size_t i = 0; i < 64; ++i) k[i * 4] = 12.5, k[i * 4 + 1] = 11, k[i * 4 + 2] = 12.4375;
  assert_true(accepts(body, {q, k}, {1, 0, 0, 0}));
  assert_false(accepts(body, {q, k}, {0.99, 0, 0.01, 0}));
  assert_false(accepts(body, {q, k}, {1, 0, 0, 0.001}));
}

// An infinity in between, which the real program does not have, is all that sigmoid(inf) = 1 knows: that two
// of them nearly cancel is luck.
static void overflow_in_between_is_no_knowledge(void**) {
  const std::string body =
      "in x: f16[1, 1]\nin w: f16[1, 2]\nin v: f16[2, 1]\ns = matmul(x, w)\nt = mul(s, 0.00001)\n"
      "o = sigmoid(t)\ny = matmul(o, v)\nout y\n";
  const std::vector<RealTensor> large = {{10000}, {10, 20}, {1, -1.8}}, small = {{100}, {10, 20}, {1, -1.8}};
  assert_true(std::fabs(run(body, large)[0][0] + 0.854) < 0.001);
  assert_true(accepts(body, large, {-0.854}));
  assert_true(accepts(body, large, {0.731 - 1.8}));
  assert_false(accepts(body, large, {9}));
  assert_false(accepts(body, small, {run(body, small)[0][0] + 0.01}));
  // Nor is one with the sign of what is not infinite, though the product of two such has the right one again.
  const std::string signs =
      "in x: f16[1, 4]\nin w: f16[4, 1]\na = mul(x, 2)\ns = matmul(a, w)\ne = erf(s)\ny = mul(e, s)\nout y\n";
  const RealTensor half = {35000, 32752, 32752, 32752}, ones = {1, -1, -1, -1};
  assert_true(accepts(signs, {half, ones}, {-std::numeric_limits<double>::infinity()}));
  assert_false(accepts(signs, {{3500, 3275, 3275, 3275}, ones}, {-std::numeric_limits<double>::infinity()}));
}

// Sums of finite terms that may overflow in another order oppose the infinity of one of them.
static void infinities_meet_overflow(void**) {
  const double most = std::numeric_limits<float>::max(), infinity = std::numeric_limits<double>::infinity();
  const std::string body = "in x: f32[1, 4]\no = sum(x, axis=1)\nout o\n";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto graph = parse_graph("graph g\n" + body);
  assert_ok(graph);
  assert_true(accepts(body, {{-most, -most, infinity, 0}}, {nan}));
  assert_true(accepts(body, {{-most, 1, infinity, 0}}, {infinity}));
  assert_false(accepts(body, {{-most, 1, infinity, 0}}, {1}));
  // A product that is too large for f16 is an infinity of the unfused program alone, which an infinite term opposes.
  const std::string product =
      "in x: f16[2]\nin y: f32[2]\np = mul(x, x)\nq = cast(y, dtype=f16)\no = add(p, q)\nout o\n";
  for (const double actual : {nan, -infinity})
    assert_true(accepts(product, {{6e4, 2}, {-1e9, -1e9}}, {actual, -infinity}));
  assert_false(accepts(product, {{6e4, 2}, {-1e9, -1e9}}, {nan, nan}));
  assert_false(accepts(product, {{6e4, 2}, {1e9, -1e9}}, {nan, -infinity}));
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(movement),
      cmocka_unit_test(reductions),
      cmocka_unit_test(matmul),
      cmocka_unit_test(composites),
      cmocka_unit_test(casts_round),
      cmocka_unit_test(buffers_have_strides),
      cmocka_unit_test(bounds_tell_right_from_wrong),
      cmocka_unit_test(bounds_allow_tf32_where_it_is_allowed),
      cmocka_unit_test(small_rows_have_bounds_of_their_own),
      cmocka_unit_test(bounds_fit_the_noise),
      cmocka_unit_test(single_elements_are_those_of_the_whole),
      cmocka_unit_test(infinities_and_nan),
      cmocka_unit_test(choices_and_integers),
      cmocka_unit_test(scores_of_ten_thousand_have_a_meaning),
      cmocka_unit_test(overflow_in_between_is_no_knowledge),
      cmocka_unit_test(infinities_meet_overflow),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
