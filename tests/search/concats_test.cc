// Operators in front of concatenations come behind them and compute the same, and others stay.
#include "core/search/concats.h"

#include "tests/search/same_graph.h"

namespace quern {

namespace {

const std::string kInputs = "graph g\nin x: f32[3, 8]\nin y: f32[3, 4]\nin c: f32[3, 12]\nin i: i32[3, 5]\n"
                            "p = slice(x, start=[0, 0], stop=[3, 4])\nq = slice(x, start=[0, 4], stop=[3, 8])\n";

void operators_come_behind(void**) {
  const char* kRests[] = {
      "n = neg(q)\nr = concat(n, p, axis=1)\ns = mul(r, x)\nout s\n",
      "n = abs(p)\nr = concat(q, n, axis=1)\nout r, q\n",
      "n = square(x)\nr = concat(n, y, axis=1)\ns = add(r, c)\nout s\n",
      "n = relu(y)\nr = concat(n, p, axis=0)\nout r\n",
      "n = neg(i)\nr = concat(i, n, axis=1)\nout r\n"};
  for (const char* rest : kRests) {
    const Graph graph = graph_of(kInputs + rest), made = operators_behind_concats(graph);
    assert_computes_the_same(graph, made);
    for (const Node& node : made.nodes)
      if (node.code == OpCode::concat)
        for (ValueId operand : node.operands)
          assert_false(is_elementwise(made.node(operand).code));
  }
}

void others_stay(void**) {
  const char* kRests[] = {
      // Somebody else reads it, it is of what is computed, it costs more, or it takes two operands.
      "n = neg(q)\nr = concat(n, p, axis=1)\nout r, n\n",
      "e = exp(q)\nn = neg(e)\nr = concat(n, p, axis=1)\nout r\n",
      "n = exp(q)\nr = concat(n, p, axis=1)\nout r\n",
      "n = add(q, p)\nr = concat(n, p, axis=1)\nout r\n",
      // The other part is computed, too; three parts; the same part twice.
      "n = neg(q)\nm = neg(p)\nr = concat(n, m, axis=1)\nout r\n",
      "n = neg(q)\nr = concat(n, p, y, axis=1)\nout r\n",
      "n = neg(q)\nr = concat(n, n, axis=1)\nout r\n"};
  for (const char* rest : kRests) {
    const Graph graph = graph_of(kInputs + rest);
    assert_stays(graph, operators_behind_concats);
  }
}

void random_graphs_stay_the_same(void**) { assert_random_graphs_compute_the_same(operators_behind_concats); }

// The rotation of what a kernel has made is one kernel, which finds the halves where they lie.
void a_rotation_is_one_kernel(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[32, 64]\nin w: f16[64]\nin cos: f16[32, 64]\nin sin: f16[32, 64]\nh = rms_norm(x, w)\n"
      "p = slice(h, start=[0, 0], stop=[32, 32])\nq = slice(h, start=[0, 32], stop=[32, 64])\nn = neg(q)\n"
      "r = concat(n, p, axis=1)\na = mul(h, cos)\nb = mul(r, sin)\ny = add(a, b)\nout y\n");
  const MuGraph best = best_of_search(graph);
  assert_int_equal(std::count_if(best.kernels.begin(), best.kernels.end(),
                                 [](const MuKernel& kernel) { return kernel.custom; }),
                   2);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(operators_come_behind), cmocka_unit_test(others_stay),
                              cmocka_unit_test(random_graphs_stay_the_same),
                              cmocka_unit_test(a_rotation_is_one_kernel)};
  return cmocka_run_group_tests_name("concats", tests, nullptr, nullptr);
}
