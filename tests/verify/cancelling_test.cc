// Inputs at which sums of the graph cancel.
#include "core/verify/cancelling.h"

#include <algorithm>
#include <cmath>

#include "core/base/random.h"
#include "core/graph/decompose.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

struct Cancelled {
  Graph graph;
  std::vector<RealTensor> before, inputs;
  bool done;
};

// Inputs are multiples of 1/8 up to 8, which every dtype has.
Cancelled cancelled(const std::string& text, int draw = 0, uint64_t seed = 1) {
  Cancelled out{decompose(graph_of(text)), {}, {}, false};
  Random random(seed);
  for (ValueId id : out.graph.inputs) {
    RealTensor& elements = out.before.emplace_back();
    for (int64_t e = 0; e < out.graph.node(id).type.element_count(); ++e)
      elements.push_back(static_cast<double>(random.below(129)) / 8 - 8);
  }
  out.inputs = out.before;
  out.done = cancel_sum(out.graph, out.inputs, out.inputs.size(), seed, draw);
  return out;
}

// For each row of a graph's first output, of so many columns, the largest size of its elements.
std::vector<double> row_sizes(const Cancelled& of, size_t columns, const std::vector<RealTensor>& inputs) {
  const RealTensor output = evaluate_reference(of.graph, inputs)[0];
  std::vector<double> sizes(output.size() / columns, 0.0);
  for (size_t e = 0; e < output.size(); ++e)
    sizes[e / columns] = std::max(sizes[e / columns], std::fabs(output[e]));
  return sizes;
}

// In one row, which the seed chooses, all elements are far smaller than before, and none is just 0.
void a_bias_cancels_a_row(void**) {
  std::vector<bool> chosen(4, false);
  for (uint64_t seed = 1; seed <= 32; ++seed) {
    const Cancelled result = cancelled(
        "graph g\nin x: f16[4, 8]\nin w: f16[8, 6]\nin b: f16[6]\na = matmul(x, w)\ny = add(a, b)\nout y\n",
        0, seed);
    assert_true(result.done);
    assert_true(result.inputs[0] == result.before[0] && result.inputs[1] == result.before[1]);
    const std::vector<double> before = row_sizes(result, 6, result.before),
                              after = row_sizes(result, 6, result.inputs);
    const size_t row = static_cast<size_t>(std::min_element(after.begin(), after.end()) - after.begin());
    chosen[row] = true;
    assert_true(after[row] > 0 && after[row] < before[row] / 16);
    for (size_t other = 0; other < 4; ++other) assert_true(other == row || after[other] > 16 * after[row]);
  }
  assert_true(std::count(chosen.begin(), chosen.end(), true) >= 3);
}

// What is moved or cast is still the input; differences cancel where both are equal.
void moved_inputs_cancel(void**) {
  for (const char* sum : {"sub(a, f)", "sub(f, a)", "add(f, a)"}) {
    const Cancelled result = cancelled(
        std::string("graph g\nin a: f32[3, 2]\nin b: bf16[2, 3]\nt = transpose(b, perm=[1, 0])\nf = "
                    "cast(t, dtype=f32)\ny = ") +
            sum + "\nout y\n",
        1);
    assert_true(result.done);
    const std::vector<double> before = row_sizes(result, 6, result.before),
                              after = row_sizes(result, 6, result.inputs);
    assert_true(after[0] < before[0] / 4);
  }
}

// Of two sums the first, then the second, then the first.
void sums_take_turns(void**) {
  const char* text = R"(graph g
in a: f32[4]
in b: f32[4]
in c: f32[4]
e = exp(a)
x = add(e, b)
y = add(x, c)
out y
)";
  for (int draw = 0; draw < 4; ++draw) {
    const Cancelled result = cancelled(text, draw);
    for (size_t input = 0; input < 3; ++input)
      assert_true((result.inputs[input] != result.before[input]) ==
                  (input == 1 + static_cast<size_t>(draw % 2)));
  }
}

// An input that the other operand is made of too, one that is scaled, one that sums do not read, integers.
void other_inputs_stay(void**) {
  for (const char* text :
       {"graph g\nin x: f32[4]\ne = exp(x)\ny = add(x, e)\nout y\n",
        "graph g\nin x: f32[4]\nin z: f32[4]\ns = mul(x, 0.5)\ne = exp(z)\ny = add(s, e)\nout y\n",
        "graph g\nin x: f32[4]\nin z: f32[4]\ny = mul(x, z)\nout y\n",
        "graph g\nin x: i32[4]\nin z: i32[4]\ny = add(x, z)\nout y\n"}) {
    const Cancelled result = cancelled(text);
    assert_false(result.done);
    assert_true(result.inputs == result.before);
  }
}

// Of what no output is made of, inputs may be missing.
void dead_sums_are_none(void**) {
  const Graph graph =
      decompose(graph_of("graph g\nin x: f32[2]\nin z: f32[2]\nin b: f32[2]\nd = add(x, z)\ne = exp(x)\ny = "
                         "add(e, b)\nout y\n"));
  for (int draw = 0; draw < 4; ++draw) {
    std::vector<RealTensor> inputs = {{1, 2}, {}, {3, 4}};
    assert_true(cancel_sum(graph, inputs, 3, 1, draw));
    assert_true(inputs[0] == (RealTensor{1, 2}) && inputs[1].empty() && inputs[2][0] < -2);
  }
}

// What would be infinite in the input's dtype, or is NaN, stays as it was; what is cut off too.
void only_numbers_of_the_dtype_cancel(void**) {
  const Graph graph = decompose(graph_of(
      "graph g\nin a: f32[3]\nin b: f16[4]\nc = slice(b, start=[0], stop=[3])\ny = add(a, c)\nout y\n"));
  std::vector<RealTensor> inputs = {{1e6, NAN, 2}, {1, 2, 3, 4}};
  assert_true(cancel_sum(graph, inputs, 2, 1, 1));
  assert_true(inputs[1][0] == 1 && inputs[1][1] == 2 && inputs[1][3] == 4);
  inputs = {{64, NAN, 2}, {1, 2, 3, 4}};
  assert_true(cancel_sum(graph, inputs, 2, 1, 1));
  assert_true(std::fabs(inputs[1][0] + 64) <= 0.5 && inputs[1][1] == 2 && inputs[1][3] == 4);
  assert_true(std::fabs(inputs[1][2] + 2) <= 0.5);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_bias_cancels_a_row), cmocka_unit_test(moved_inputs_cancel),
      cmocka_unit_test(sums_take_turns),      cmocka_unit_test(other_inputs_stay),
      cmocka_unit_test(dead_sums_are_none),   cmocka_unit_test(only_numbers_of_the_dtype_cancel)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
