// Softmaxes of which one part is read compute the same without what is concatenated, and others stay.
#include "core/search/sinks.h"

#include "core/search/search.h"
#include "tests/search/same_graph.h"

namespace quern {

namespace {

int concats_of(const Graph& graph, ValueId from) {
  int count = graph.node(from).code == OpCode::concat;
  for (ValueId operand : graph.node(from).operands) count += concats_of(graph, operand);
  return count;
}

const char* const kInputs =
    "graph g\nin s: f32[2, 3, 4]\nin z: f32[2, 1, 1]\nin t: f32[2, 3, 2]\nin h: bf16[2, 3, 4]\nin v: f32[2, "
    "4, 5]\n"
    "b = broadcast(z, shape=[2, 3, 1])\n";

void one_part_is_written_out(void**) {
  const char* kRests[] = {
      "c = concat(s, b, axis=2)\np = softmax(c)\ny = slice(p, start=[0, 0, 0], stop=[2, 3, 4])\nout y\n",
      "c = concat(b, s, axis=2)\np = softmax(c, axis=2)\nr = slice(p, start=[0, 0, 1], stop=[2, 3, 5])\ny = "
      "matmul(r, "
      "v)\nout y, s\n",
      "c = concat(t, s, t, axis=2)\np = softmax(c)\ny = slice(p, start=[0, 0, 2], stop=[2, 3, 6])\nout y\n",
      // The rest of the row is the sum's, but not repeated along it.
      "w = broadcast(z, shape=[2, 3, 3])\nc = concat(s, w, axis=2)\np = softmax(c)\ny = slice(p, start=[0, "
      "0, 0], stop=[2, "
      "3, 4])\nout y\n",
      // As models write it: with the maximum taken off in front, and casts.
      "c = concat(s, b, axis=2)\nm = max(c, axis=2, keepdims=true)\nd = sub(c, m)\np = softmax(d)\ny = "
      "slice(p, start=[0, "
      "0, 0], stop=[2, 3, 4])\nout y\n",
      "u = cast(b, dtype=bf16)\nc = concat(h, u, axis=2)\nf = cast(c, dtype=f32)\np = softmax(f)\nq = "
      "cast(p, "
      "dtype=bf16)\ny = slice(q, start=[0, 0, 0], stop=[2, 3, 4])\nout y\n",
      "k = transpose(s, perm=[0, 2, 1])\nl = transpose(b, perm=[0, 2, 1])\nc = concat(k, l, axis=1)\np = "
      "softmax(c, "
      "axis=1)\ny = slice(p, start=[0, 0, 0], stop=[2, 4, 3])\nout y\n"};
  for (const char* rest : kRests) {
    const Graph graph = graph_of(std::string(kInputs) + rest);
    const Graph made = without_sinks(graph);
    assert_computes_the_same(graph, made);
    assert_int_equal(concats_of(made, made.outputs[0]), 0);
  }
}

void others_stay(void**) {
  const char* kRests[] = {
      "c = concat(s, b, axis=2)\np = softmax(c)\nout p\n",
      "c = concat(s, b, axis=2)\np = softmax(c)\ny = slice(p, start=[0, 0, 0], stop=[2, 3, 4])\nout y, p\n",
      "c = concat(s, t, axis=2)\np = softmax(c)\ny = slice(p, start=[0, 0, 0], stop=[2, 3, 4])\nx = slice(p, "
      "start=[0, 0, "
      "4], stop=[2, 3, 6])\nout y, x\n",
      "c = concat(s, t, axis=2)\np = softmax(c)\ny = slice(p, start=[0, 0, 0], stop=[2, 3, 5])\nout y\n",
      "c = concat(s, b, axis=2)\np = softmax(c, axis=1)\ny = slice(p, start=[0, 0, 0], stop=[2, 3, 4])\nout "
      "y\n",
      // Not the maximum: what it is off from may be infinite.
      "c = concat(s, b, axis=2)\nd = sub(c, z)\np = softmax(d)\ny = slice(p, start=[0, 0, 0], stop=[2, 3, "
      "4])\nout y\n",
      "c = concat(s, b, axis=2)\nm = exp(c)\nd = sub(c, m)\np = softmax(d)\ny = slice(p, start=[0, 0, 0], "
      "stop=[2, 3, "
      "4])\nout y\n"};
  for (const char* rest : kRests) {
    const Graph graph = graph_of(std::string(kInputs) + rest);
    assert_text_equal(print_graph(without_sinks(graph)), print_graph(graph));
  }
}

// Attention with sinks is one kernel, whose loop runs over the keys.
void attention_with_sinks_is_one_kernel(void**) {
  const Graph graph = graph_of(
      "graph g\nin q: bf16[4, 512, 64]\nin k: bf16[4, 64, 512]\nin v: bf16[4, 512, 64]\nin z: f32[4, 1, 1]\n"
      "s = matmul(q, k)\nt = mul(s, 0.125)\nf = cast(t, dtype=f32)\nb = broadcast(z, shape=[4, 512, 1])\n"
      "c = concat(f, b, axis=2)\np = softmax(c)\nr = slice(p, start=[0, 0, 0], stop=[4, 512, 512])\n"
      "h = cast(r, dtype=bf16)\ny = matmul(h, v)\nout y\n");
  const auto found = search(graph, **find_target("sm_90a"), {});
  assert_ok(found);
  assert_true(std::any_of(found->candidates.begin(), found->candidates.end(), [](const Candidate& candidate) {
    const std::vector<MuKernel>& kernels = candidate.mugraph.kernels;
    return kernels.size() == 1 && kernels[0].custom && kernels[0].trip_count > 1;
  }));
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(one_part_is_written_out), cmocka_unit_test(others_stay),
                              cmocka_unit_test(attention_with_sinks_is_one_kernel)};
  return cmocka_run_group_tests_name("sinks", tests, nullptr, nullptr);
}
