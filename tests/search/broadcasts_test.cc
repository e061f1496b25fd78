// Operators read what is repeated in place of repetitions, and compute the same.
#include "core/search/broadcasts.h"

#include "tests/search/same_graph.h"

namespace quern {

namespace {

const std::string kInputs =
    "graph g\nin q: f32[2, 3, 5, 4]\nin k: f32[2, 1, 6, 4]\nin m: f32[5, 1]\nin b: f32[4]\n";

bool has_broadcast(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (node.code == OpCode::broadcast) return true;
  return false;
}

void repetitions_go(void**) {
  const char* kRests[] = {
      "e = broadcast(k, shape=[2, 3, 6, 4])\nt = transpose(e, perm=[0, 1, 3, 2])\ns = matmul(q, t)\nout s\n",
      // As keys that all heads share are repeated: through dimensions of extent 1.
      "r = reshape(k, shape=[2, 1, 1, 6, 4])\ne = broadcast(r, shape=[2, 1, 3, 6, 4])\n"
      "j = reshape(e, shape=[2, 3, 6, 4])\nt = transpose(j, perm=[0, 1, 3, 2])\ns = matmul(q, t)\n"
      "n = broadcast(m, shape=[5, 6])\nv = reshape(n, shape=[1, 1, 5, 6])\nu = cast(v, dtype=f16)\nh = "
      "neg(u)\n"
      "a = add(s, h)\nout a\n",
      "e = broadcast(b, shape=[2, 3, 5, 4])\ny = mul(q, e)\nout y\n",
      "e = broadcast(b, shape=[5, 4])\nf = broadcast(e, shape=[2, 3, 5, 4])\ny = mul(q, f)\nout y\n"};
  for (const char* rest : kRests) {
    const Graph graph = graph_of(kInputs + rest), made = without_broadcasts(graph);
    assert_computes_the_same(graph, made);
    assert_false(has_broadcast(made));
  }
}

void one_of_two_stays(void**) {
  const Graph
      graph = graph_of(
          kInputs +
          "e = broadcast(b, shape=[5, 4])\nf = broadcast(m, shape=[5, 4])\ny = mul(e, f)\n"
          "g = broadcast(b, shape=[7, 4])\nh = broadcast(b, shape=[7, 4])\nz = add(g, h)\nout y, z\n"),
      made = without_broadcasts(graph);
  assert_computes_the_same(graph, made);
  size_t broadcasts = 0;
  for (const Node& node : made.nodes) broadcasts += node.code == OpCode::broadcast;
  assert_int_equal(broadcasts, 1);  // somebody has to have seven rows
}

void others_stay(void**) {
  for (const char* rest :
       {"e = broadcast(b, shape=[5, 4])\nout e\n",
        // A sum counts the repetitions, a product's own dimensions are its own, and this joins some.
        "e = broadcast(b, shape=[5, 4])\ns = sum(e, axis=0)\nout s\n",
        "e = broadcast(m, shape=[5, 4])\nt = transpose(e, perm=[1, 0])\ns = matmul(e, t)\nout s\n",
        "e = broadcast(k, shape=[2, 3, 6, 4])\nr = reshape(e, shape=[6, 6, 4])\ny = neg(r)\nout y\n"}) {
    const Graph graph = graph_of(kInputs + rest);
    assert_stays(graph, without_broadcasts);
  }
}

void random_graphs_stay_the_same(void**) { assert_random_graphs_compute_the_same(without_broadcasts); }

// One kernel, as where each head has keys of its own.
void attention_with_one_key_head(void**) {
  auto found = search(
      graph_of("graph g\nin q: bf16[1, 4, 256, 64]\nin k: bf16[1, 1, 256, 64]\nin v: bf16[1, 1, 256, 64]\n"
               "i = iota(shape=[256, 256], axis=0)\nj = iota(shape=[256, 256], axis=1)\nc = le(j, i)\n"
               "ke = broadcast(k, shape=[1, 4, 256, 64])\nve = broadcast(v, shape=[1, 4, 256, 64])\n"
               "t = transpose(ke, perm=[0, 1, 3, 2])\ns = matmul(q, t)\nw = where(c, s, -inf)\nf = cast(w, "
               "dtype=f32)\n"
               "p = softmax(f)\nh = cast(p, dtype=bf16)\no = matmul(h, ve)\nout o\n"),
      **find_target("sm_90a"), {});
  assert_ok(found);
  assert_false(found->candidates.empty());
  size_t kernels = 0;
  for (const MuKernel& kernel : found->candidates[0].mugraph.kernels) kernels += kernel.custom;
  assert_int_equal(kernels, 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(repetitions_go), cmocka_unit_test(one_of_two_stays),
                              cmocka_unit_test(others_stay), cmocka_unit_test(random_graphs_stay_the_same),
                              cmocka_unit_test(attention_with_one_key_head)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
