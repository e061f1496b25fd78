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

// The names of casts that keep precision.
static std::string loose(const std::string& statements) {
  const Graph graph = decompose(*parse_graph(
      "graph g\nin x: f32[8, 8]\nin w: bf16[8, 8]\nin v: f32[8, 8]\nh = cast(x, dtype=bf16)\n" + statements));
  std::string names;
  for (const Node& node : graph.nodes)
    if (node.keeps_precision) names += node.name;
  return names;
}

static void casts_that_are_only_multiplied_keep_precision(void**) {
  assert_text_equal(loose("y = matmul(h, w)\nout y\n"), "h");
  assert_text_equal(loose("y = matmul(w, h)\nz = matmul(h, h)\nout y, z\n"), "h");
  assert_text_equal(loose("t = transpose(h)\na = mul(t, w)\nb = mul(a, 0.5)\ny = matmul(b, w)\nout y\n"),
                    "h");
  assert_text_equal(loose("a = mul(h, w)\ny = sum(a, axis=1)\nout y\n"), "h");
  // What rounding took away is seen.
  assert_text_equal(loose("y = sum(h, axis=1)\nout y\n"), "");
  assert_text_equal(loose("out h\n"), "");
  assert_text_equal(loose("y = matmul(h, w)\nout y, h\n"), "");
  assert_text_equal(loose("t = transpose(h)\ny = matmul(t, w)\nout y, t\n"), "");
  assert_text_equal(loose("a = mul(h, w)\nout a\n"), "");
  assert_text_equal(loose("a = add(h, w)\ny = matmul(a, w)\nout y\n"), "");
  assert_text_equal(loose("a = exp(h)\ny = matmul(a, w)\nout y\n"), "");
  assert_text_equal(loose("f = cast(h, dtype=f32)\ny = matmul(f, v)\nout y\n"), "");
  assert_text_equal(loose("y = matmul(h, v)\nout y\n"), "");
  // The rest that is multiplied by itself: of the two only its own cast.
  assert_text_equal(loose("f = cast(h, dtype=f32)\nd = sub(x, f)\nl = cast(d, dtype=bf16)\ny = matmul(h, w)\n"
                          "z = matmul(l, w)\nout y, z\n"),
                    "l");
  // To f32, or from another dtype than f32.
  assert_text_equal(
      loose("f = cast(w, dtype=f32)\ny = matmul(f, v)\nk = cast(w, dtype=f16)\nz = matmul(k, k)\nout y, z\n"),
      "");
}

// As softmax(scores, dtype=f32) that is cast back.
static void softmaxes_are_rounded_by_their_readers(void**) {
  auto dtype_of = [](const std::string& statements) {
    const Graph graph =
        decompose(*parse_graph("graph g\nin s: f32[8, 8]\nin w: bf16[8, 8]\nin v: f32[8, 8]\n" + statements));
    const std::optional<DType> dtype = softmax_dtypes(graph)[static_cast<size_t>(graph.inputs[0])];
    return std::string(dtype ? dtype_name(*dtype) : "none");
  };
  const std::string rounded = "p = softmax(s)\nh = cast(p, dtype=bf16)\ny = matmul(h, w)\n";
  assert_text_equal(dtype_of(rounded + "out y\n"), "bf16");
  assert_text_equal(dtype_of(rounded + "out y, p\n"), "none");
  assert_text_equal(dtype_of(rounded + "z = matmul(p, v)\nout y, z\n"), "none");
  assert_text_equal(dtype_of(rounded + "out y, h\n"), "none");
  assert_text_equal(dtype_of("p = softmax(s)\ny = matmul(p, v)\nout y\n"), "none");
  // Over the other axis, in f32.
  assert_text_equal(dtype_of(rounded + "q = softmax(s, axis=0)\nz = matmul(q, v)\nout y, z\n"), "none");
  assert_text_equal(dtype_of(rounded + "z = mul(s, 2)\nout y, z\n"), "bf16");
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(no_composites_remain), cmocka_unit_test(softmax_is_shifted),
                              cmocka_unit_test(casts_that_are_only_multiplied_keep_precision),
                              cmocka_unit_test(softmaxes_are_rounded_by_their_readers)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
