// Inputs at which the unfused program is finite, just.
#include "core/verify/brink.h"

#include <algorithm>
#include <cmath>

#include "core/graph/decompose.h"
#include "core/graph/text.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

Graph primitive_of(const char* text) {
  const auto graph = parse_graph(text);
  assert_ok(graph);
  return decompose(*graph);
}

double largest(const RealTensor& elements) {
  double most = 0;
  for (double element : elements) most = std::max(most, std::fabs(element));
  return most;
}

// What a graph of one output makes of inputs of ones at the brink: the largest element of it.
double at_brink(const char* text, int draw, uint64_t seed = 1) {
  const Graph graph = primitive_of(text);
  std::vector<RealTensor> inputs;
  for (ValueId id : graph.inputs)
    inputs.emplace_back(static_cast<size_t>(graph.node(id).type.element_count()), 1.0);
  if (!scale_to_brink(graph, inputs, inputs.size(), seed, draw)) return 0;
  return largest(evaluate_reference(graph, inputs)[0]);
}

void assert_between(double value, double low, double high) {
  if (!(value >= low && value <= high))
    fail_test(std::to_string(value) + " is not between " + std::to_string(low) + " and " +
              std::to_string(high));
}

// The largest value is just below the end of its dtype, whichever it is.
void the_fullest_value_is_just_below_the_end(void**) {
  constexpr double kF32 = 0x1.fffffep127;
  assert_between(at_brink("graph g\nin x: f32[4, 8]\nin w: f32[8, 2]\ny = matmul(x, w)\nout y\n", 0),
                 0.75 * kF32, kF32);
  assert_between(at_brink("graph g\nin x: f16[4]\ny = mul(x, x)\nout y\n", 0), 0.75 * 65504, 65504);
  // The product in between, though the result is small; the sum of the sizes of terms that cancel.
  assert_between(at_brink("graph g\nin x: bf16[4]\na = mul(x, x)\ny = mul(a, 0.001)\nout y\n", 0),
                 0.75e-3 * kF32, 1e-3 * kF32);
  assert_between(
      at_brink("graph g\nin x: f32[4]\nn = neg(x)\nc = concat(x, n)\ns = sum(c)\ny = add(x, s)\nout y\n", 0),
      0.75 / 8 * kF32, kF32 / 8);
  assert_between(at_brink("graph g\nin x: f32[4]\ny = exp(x)\nout y\n", 0), 0.75 * kF32, kF32);
}

// In some draws one factor shrinks, so that the other is near its end and the product is not.
void inputs_shrink_in_some_draws(void**) {
  const Graph graph = primitive_of("graph g\nin x: f32[1]\nin z: f32[1]\ny = mul(x, z)\nout y\n");
  bool shrinks = false;
  for (int draw = 1; draw < 64; ++draw) {
    std::vector<RealTensor> inputs = {{1.0}, {1.0}};
    if (!scale_to_brink(graph, inputs, 2, static_cast<uint64_t>(draw), draw)) continue;
    shrinks |= inputs[0][0] < 1 && inputs[1][0] > 0x1p127;
  }
  assert_true(shrinks);
}

void what_is_no_input_stays(void**) {
  const Graph graph =
      primitive_of("graph g\nin x: f32[1]\nin i: f32[1]\nin n: i32[1]\ny = mul(x, i)\nout y\n");
  std::vector<RealTensor> inputs = {{1.0}, {3.0}, {5.0}};
  assert_true(scale_to_brink(graph, inputs, 1, 1, 0));
  assert_true(inputs[0][0] > 1e30);
  assert_true(inputs[1][0] == 3 && inputs[2][0] == 5);
}

// So that what in front of an output overflows shows where only the output should.
void outputs_overflow_in_some_draws(void**) {
  const double most = at_brink("graph g\nin x: f32[4]\na = mul(x, x)\ny = mul(a, 64)\nout y\n", 1);
  assert_between(most, 32 * 0x1p128, 64 * 0x1p128);
}

void all_overflows_in_every_fourth_draw(void**) {
  const double most = at_brink("graph g\nin x: f32[4]\na = exp(x)\ny = mul(a, 2)\nout y\n", 3);
  assert_between(most, 0x1p132, 0x1p192);
}

// Some inputs are too large from the start.
void inputs_may_shrink_to_the_brink(void**) {
  const double most = at_brink("graph g\nin x: f32[4]\na = mul(x, 1000)\ny = exp(a)\nout y\n", 0);
  assert_between(most, 0.75 * 0x1p128, 0x1p128);
}

// An output that is far from its end is not hidden by one that is near.
void outputs_take_turns(void**) {
  const Graph graph = primitive_of("graph g\nin x: f32[1]\na = mul(x, 1e30)\nb = mul(x, 0.5)\nout a, b\n");
  for (int draw : {0, 4}) {
    std::vector<RealTensor> inputs = {{1.0}};
    assert_true(scale_to_brink(graph, inputs, 1, 1, draw));
    assert_true(inputs[0][0] > (draw == 0 ? 1e8 : 1e38) && inputs[0][0] < (draw == 0 ? 1e9 : 1e39));
  }
}

// A product that another one hides comes near its end alone, and with the input it does not grow with,
// nothing is lost.
void inner_values_take_turns(void**) {
  const Graph graph = primitive_of(R"(graph g
in x: f32[1, 8]
in v: f32[8, 1]
in w: f32[8, 1]
n = rms_norm(x, axis=1)
a = matmul(n, v)
b = matmul(n, w)
y = mul(a, b)
out y
)");
  std::vector<RealTensor> ones;
  for (ValueId id : graph.inputs)
    ones.emplace_back(static_cast<size_t>(graph.node(id).type.element_count()), 1.0);
  bool v_alone = false, w_alone = false;
  for (int draw = 3; draw < 32; draw += 4) {
    std::vector<RealTensor> inputs = ones;
    if (!scale_to_overflow(graph, inputs, inputs.size(), 1, draw)) continue;
    assert_true(std::fabs(evaluate_reference(graph, inputs)[0][0]) < 0x1p128);
    v_alone |= largest(inputs[1]) > 0x1p123 && largest(inputs[2]) < 1 && largest(inputs[0]) == 1;
    w_alone |= largest(inputs[2]) > 0x1p123 && largest(inputs[1]) < 1 && largest(inputs[0]) == 1;
  }
  assert_true(v_alone && w_alone);
}

// Integers have no end.
void some_graphs_have_no_brink(void**) {
  assert_true(at_brink("graph g\nin x: i32[4]\ny = mul(x, x)\nout y\n", 0) == 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_fullest_value_is_just_below_the_end),
      cmocka_unit_test(inputs_shrink_in_some_draws),
      cmocka_unit_test(outputs_overflow_in_some_draws),
      cmocka_unit_test(all_overflows_in_every_fourth_draw),
      cmocka_unit_test(inputs_may_shrink_to_the_brink),
      cmocka_unit_test(outputs_take_turns),
      cmocka_unit_test(inner_values_take_turns),
      cmocka_unit_test(what_is_no_input_stays),
      cmocka_unit_test(some_graphs_have_no_brink),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
