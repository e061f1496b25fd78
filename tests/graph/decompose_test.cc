// Decomposition leaves only primitive operators and keeps inputs, outputs and their types.
#include "core/graph/decompose.h"

#include "core/graph/text.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

using namespace quern;

static void no_composites_remain(void**) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = random_graph(seed), primitive = decompose(graph);
    for (size_t id = 0; id < primitive.nodes.size(); ++id) {
      assert_true(op_info(primitive.nodes[id].code).kind != OpKind::composite);
      for (ValueId operand : primitive.nodes[id].operands) assert_true(operand < static_cast<ValueId>(id));
    }
    assert_int_equal(primitive.inputs.size(), graph.inputs.size());
    assert_int_equal(primitive.outputs.size(), graph.outputs.size());
    for (size_t i = 0; i < graph.outputs.size(); ++i)
      assert_true(primitive.node(primitive.outputs[i]).type == graph.node(graph.outputs[i]).type);
  }
}

static void softmax_is_shifted(void**) {
  const Graph graph = decompose(*parse_graph("graph g\nin x: f16[2, 3]\ny = softmax(x)\nout y\n"));
  assert_text_equal(
      print_graph(graph),
      "graph g\nin x: f16[2, 3]\nd1 = max(x, axis=[1], keepdims=true)\nd2 = sub(x, d1)\nd3 = exp(d2)\n"
      "d4 = sum(d3, axis=[1], keepdims=true)\ny = div(d3, d4)\nout y\n");
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(no_composites_remain), cmocka_unit_test(softmax_is_shifted)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
