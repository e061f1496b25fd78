// The noise of the unfused program: how far rounding may move a value, alone and together with others.
#include <cmath>

#include "core/base/random.h"
#include "core/graph/text.h"
#include "core/verify/demand.h"
#include "core/verify/noisy_steps.h"
#include "core/verify/real_domains.h"
#include "core/verify/reference.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

using namespace quern;

// What all elements of a row read is off by the same for all of them: in a sum over the row that adds up, and
// in a quotient by such a sum it cancels.
static void noise_that_is_shared_adds_up_or_cancels(void**) {
  const auto expected_of = [](const std::string& reads, int64_t count) {
    const std::string shape = "[1, " + std::to_string(count) + "]";
    const auto graph =
        parse_graph("graph g\nin a: f16[1, 1]\nin x: f32" + shape + "\nr = mul(a, a)\n" + reads +
                    "d = sub(x, m)\ns = sum(d, axis=1)\ne = mul(x, m)\nt = sum(e, axis=1, keepdims=true)\n"
                    "q = div(e, t)\nout s, q\n");
    assert_ok(graph);
    return expect_outputs(*graph, {{0x1.66cp-1}, RealTensor(static_cast<size_t>(count), 1.0)});
  };
  const double rounding = 0.49 * 0x1p-11 / std::sqrt(3.0);  // a deviation of what `r` is rounded by
  for (const std::string reads :
       {"m = add(r, 0)\n", "c = cast(r, dtype=bf16)\nm = cast(c, dtype=f32)\n",
        "b = broadcast(r, shape=[3, 1])\nm = slice(b, start=[0, 0], stop=[1, 1])\n"})
    for (int64_t count : {16, 256}) {
      const std::vector<Expected> expected = expected_of(reads, count);
      assert_true(expected[0].bound[0] > 0.9 * 8 * rounding * static_cast<double>(count));
      assert_true(expected[1].bound[0] < 1e-4 / static_cast<double>(count));
    }
}

// Near -80 a product of such terms is off by 8 and more, so that nobody knows how small its sigmoid is; in x
// sigmoid(x) both x have the same noise.
static void functions_of_noise_know_little(void**) {
  for (const char* function : {"sigmoid", "silu", "gelu_tanh"}) {
    const auto graph = parse_graph(
        "graph g\nin x: f32[1, 64]\nin w: bf16[64, 1]\nn = mul(w, 1000.3)\ns = matmul(x, n)\no = " +
        std::string(function) + "(s)\nout s, o\n");
    assert_ok(graph);
    std::vector<RealTensor> inputs;
    for (const TensorDesc& desc : graph->input_descs())
      inputs.push_back(read_buffer(desc, random_buffer(desc, scramble(7 + inputs.size())).data()));
    const double sum = evaluate_reference(*graph, inputs)[0][0];
    inputs[0][0] -= (sum + 80) / (1000.3 * inputs[1][0]);
    const std::vector<Expected> expected = expect_outputs(*graph, inputs);
    const double score = expected[0].exact[0], reach = expected[0].bound[0] / 2;
    assert_true(std::fabs(score + 80) < 1 && reach > 8 && reach < 40);
    auto of = [&](double x) {
      const auto alone = parse_graph("graph g\nin s: f32[1]\no = " + std::string(function) + "(s)\nout o\n");
      assert_ok(alone);
      return evaluate_reference(*alone, {{x}})[0][0];
    };
    const Comparison found = compare(graph->output_descs()[1], {of(score + reach)}, expected[1]);
    if (!found.acceptable) fail_test(std::string(function) + " " + found.what);
    assert_true(expected[1].bound[0] < 1);
  }
}

// Where sums overflow in one order and not in another, all that is made of them may be what it would be in either: at
// once, which does not average out.
static void sums_overflow_together(void**) {
  constexpr int64_t kCount = 64;
  const auto graph = parse_graph(
      "graph g\nin x: f32[1, 3]\nin w: f32[3, 64]\ns = matmul(x, w)\np = sigmoid(s)\no = sum(p, axis=1)\nout "
      "o\n");
  assert_ok(graph);
  std::vector<RealTensor> inputs = {{3e38, 3e38, -3e38}, RealTensor(3 * kCount, 0.9)};
  const std::vector<Expected> expected = expect_outputs(*graph, inputs);
  for (double reached : {0.0, kCount / 2.0, double{kCount}})
    assert_true(compare(graph->output_descs()[0], {reached}, expected[0]).acceptable);
}

// A variance whose deviations are those of the mean's rounding: what the mean may be by its bound makes the variance
// larger by the square of that, which does not average out as the deviations themselves do.
static void squares_of_common_noise(void**) {
  for (const char* square : {"q = square(d)\nv = mean(q, axis=0)\n", "q = mul(d, d)\nv = mean(q, axis=0)\n",
                             "t = transpose(d)\nw = matmul(t, d)\nv = mul(w, 0.000244140625)\n"}) {
    const Result<Graph> graph =
        parse_graph(std::string("graph g\nin x: f32[4096, 1]\n") +
                    "m = mean(x, axis=0, keepdims=true)\nd = sub(x, m)\n" + square + "out m, v\n");
    assert_ok(graph);
    RealTensor x;
    Random random(1);
    for (int i = 0; i < 4096; ++i) x.push_back(static_cast<float>(1000 + random.symmetric() * 0x1p-12));
    const std::vector<Expected> expected = expect_outputs(*graph, {x});
    const double moved = expected[0].exact[0] + expected[0].bound[0] / 4;
    double variance = 0;
    for (double one : x) variance += (one - moved) * (one - moved) / 4096;
    const double bound = expected[1].bound[0], exact = expected[1].exact[0];
    assert_true(std::fabs(variance - exact) <= bound);
    assert_true(bound <= 100 * std::fabs(variance - exact));
  }
}

// A mask of the lowest finite number is no infinity: what is added to it is rounded back into the range, and what softmax makes
// of the row is compared.
static void the_lowest_number_stays_in_range(void**) {
  for (const auto& [dtype, lowest] : {std::pair{"bf16", "-3.3895313892515355e+38"}, {"f16", "-65504.0"}}) {
    const Result<Graph> graph = parse_graph(
        with(with("graph g\nin s: TYPE[1, 4]\nin m: bool[1, 4]\nt = mul(s, 0.3)\nw = where(m, 0.0, LOWEST)\n"
                  "a = cast(w, dtype=TYPE)\nb = add(t, a)\nf = cast(b, dtype=f32)\np = softmax(f)\nout p\n",
                  "TYPE", dtype),
             "LOWEST", lowest));
    assert_ok(graph);
    const std::vector<Expected> expected = expect_outputs(*graph, {{1, -1, 0.5, 2}, {1, 0, 1, 0}});
    RealTensor other = expected[0].exact;
    assert_true(compare(graph->output_descs()[0], other, expected[0]).acceptable);
    for (double& element : other) element *= 1.25;
    assert_false(compare(graph->output_descs()[0], other, expected[0]).acceptable);
  }
}

// Where a sum of large numbers cancels, no digit of what is left is right: bounds are wider, which near others they are not.
static void noise_that_leaves_no_digit_spreads_wider(void**) {
  const auto bound_of = [](double exact, double unfused) {
    Noisy value = noise::known(exact);
    value.unfused = unfused;
    return noise::own_bound(DType::f32, value) / std::fabs(unfused - exact);
  };
  assert_float_equal(bound_of(0.5, 0.5 + 0x1p40), 8, 1e-6);
  assert_float_equal(bound_of(0.5, 0.5 + 0x1p20), 2, 1e-6);
  assert_float_equal(bound_of(0, 0x1p40), 2, 1e-6);
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_lowest_number_stays_in_range),
      cmocka_unit_test(noise_that_is_shared_adds_up_or_cancels),
      cmocka_unit_test(functions_of_noise_know_little),
      cmocka_unit_test(sums_overflow_together),
      cmocka_unit_test(squares_of_common_noise),
      cmocka_unit_test(noise_that_leaves_no_digit_spreads_wider),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
