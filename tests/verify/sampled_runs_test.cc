// Bounds of sampled runs: wider where noise has something in common or functions bend within it, and not
// else.
#include "core/verify/sampled_runs.h"

#include <cmath>

#include "core/graph/text.h"
#include "tests/support/test.h"

namespace quern {

namespace {

// The bound of the only output element, as the formulas have it and of sampled runs.
std::pair<double, double> bounds(const std::string& body, const std::vector<RealTensor>& inputs) {
  const auto graph = parse_graph("graph g\n" + body);
  assert_ok(graph);
  std::vector<Expected> expected = expect_outputs(*graph, inputs);
  const double formulas = expected[0].bound[0];
  widen_bounds(*graph, inputs, false, expected);
  return {formulas, expected[0].bound[0]};
}

RealTensor numbers(size_t count, double mean, double spread) {
  RealTensor out;
  for (size_t i = 0; i < count; ++i)
    out.push_back(mean + spread * std::sin(1.7 * static_cast<double>(i) + 0.3 * static_cast<double>(i * i)));
  return out;
}

// All columns of w are nearly the same: what the roundings of a add to one element of b they add to all.
void noise_of_a_contraction_is_common_to_its_row(void**) {
  const std::string body =
      "in x: bf16[1, 16]\nin w: bf16[16, 128]\nin v: bf16[128, 1]\na = mul(x, 0.7)\nb = matmul(a, w)\n"
      "y = matmul(b, v)\nout y\n";
  const auto [formulas, sampled] =
      bounds(body, {numbers(16, 0, 1), RealTensor(2048, 60), RealTensor(128, 10)});
  assert_true(sampled > 2.5 * formulas);
  const auto [own, again] = bounds(body, {numbers(16, 0, 1), numbers(2048, 0, 60), numbers(128, 0, 10)});
  assert_true(again < 2 * own);
}

// Between -3 and 0 the function has its minimum; the noise around -3 ends where it is nearly 0.
void functions_bend_within_the_noise(void**) {
  const std::string body =
      "in x: bf16[1, 4]\nin w: bf16[4, 1]\na = mul(x, 0.7)\ns = matmul(a, w)\ny = gelu(s)\nout y\n";
  const auto [formulas, sampled] = bounds(body, {{274, 274, 274, 274}, {1, -1.015625, 0.6875, -0.6875}});
  assert_true(sampled > 3 * formulas);
}

void exact_programs_have_no_noise(void**) {
  const std::string body = "in x: bf16[1, 4]\nin w: bf16[4, 1]\na = mul(x, 2)\ny = matmul(a, w)\nout y\n";
  const auto [formulas, sampled] = bounds(body, {{1, 2, 3, 4}, {1, -1, 2, 5}});
  assert_true(sampled == formulas);
}

}  // namespace

}  // namespace quern

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(quern::noise_of_a_contraction_is_common_to_its_row),
      cmocka_unit_test(quern::functions_bend_within_the_noise),
      cmocka_unit_test(quern::exact_programs_have_no_noise),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
