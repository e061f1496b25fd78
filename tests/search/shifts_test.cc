// A softmax of what is relative to its maximum is one of the values themselves, and graphs compute the same.
#include "core/search/shifts.h"

#include "tests/search/same_graph.h"

namespace quern {

namespace {

const std::string kInputs = "graph g\nin x: f32[3, 4, 6]\n";

bool has_difference(const Graph& graph) {
  std::vector<bool> needed(graph.nodes.size());
  for (ValueId output : graph.outputs) needed[static_cast<size_t>(output)] = true;
  bool found = false;
  for (size_t id = graph.nodes.size(); id-- > 0;) {
    if (!needed[id]) continue;
    found |= graph.nodes[id].code == OpCode::sub;
    for (ValueId operand : graph.nodes[id].operands) needed[static_cast<size_t>(operand)] = true;
  }
  return found;
}

void own_maxima_are_left_out(void**) {
  for (const char* rest :
       {"m = max(x, axis=-1, keepdims=true)\nd = sub(x, m)\ns = softmax(d, axis=-1)\nout s\n",
        "m = max(x, axis=1, keepdims=true)\nd = sub(x, m)\ns = softmax(d, axis=1)\ny = mul(s, x)\nout y\n",
        "m = max(x, axis=[2, 1], keepdims=true)\nd = sub(x, m)\ns = softmax(d, axis=[1, 2])\nout s\n"}) {
    const Graph graph = graph_of(kInputs + rest), made = without_shifts(graph);
    assert_computes_the_same(graph, made);
    assert_false(has_difference(made));
  }
  // What else reads it has it still.
  const Graph graph = graph_of(
      kInputs + "m = max(x, axis=-1, keepdims=true)\nd = sub(x, m)\ns = softmax(d, axis=-1)\nout s, d\n");
  assert_computes_the_same(graph, without_shifts(graph));
  assert_true(has_difference(without_shifts(graph)));
}

// Of other axes, or of something else, which may be infinite.
void others_stay(void**) {
  for (const char* rest :
       {"m = max(x, axis=1, keepdims=true)\nd = sub(x, m)\ns = softmax(d, axis=-1)\nout s\n",
        "m = sum(x, axis=-1, keepdims=true)\nd = sub(x, m)\ns = softmax(d, axis=-1)\nout s\n",
        "e = exp(x)\nm = max(e, axis=-1, keepdims=true)\nd = sub(x, m)\ns = softmax(d, axis=-1)\nout s\n",
        "m = max(x, axis=-1, keepdims=true)\nd = sub(m, x)\ns = softmax(d, axis=-1)\nout s\n"}) {
    const Graph graph = graph_of(kInputs + rest);
    assert_stays(graph, without_shifts);
  }
}

void random_graphs_stay_the_same(void**) { assert_random_graphs_compute_the_same(without_shifts); }

void attention_is_one_kernel(void**) {
  const MuGraph best = best_of_search(
      graph_of("graph g\nin q: f16[2, 16, 16]\nin k: f16[2, 16, 32]\nin v: f16[2, 32, 16]\ns = matmul(q, k)\n"
               "m = max(s, axis=-1, keepdims=true)\nd = sub(s, m)\np = softmax(d, axis=-1)\no = matmul(p, "
               "v)\nout o\n"));
  size_t kernels = 0;
  for (const MuKernel& kernel : best.kernels) kernels += kernel.custom;
  assert_int_equal(kernels, 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(own_maxima_are_left_out), cmocka_unit_test(others_stay),
                              cmocka_unit_test(random_graphs_stay_the_same),
                              cmocka_unit_test(attention_is_one_kernel)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
