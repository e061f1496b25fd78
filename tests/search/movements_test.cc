// What is cast is moved in the narrower dtype, and graphs compute the same.
#include "core/search/movements.h"

#include "tests/search/same_graph.h"

namespace quern {

namespace {

const std::string kInputs = "graph g\nin x: bf16[4, 6]\nin y: f32[4, 6]\n";

// Movements of f32 values.
size_t wide_movements(const Graph& graph) {
  size_t count = 0;
  for (const Node& node : graph.nodes)
    count += op_info(node.code).kind == OpKind::movement && node.type.dtype == DType::f32;
  return count;
}

void movements_become_narrow(void**) {
  for (const char* rest : {"f = cast(x, dtype=f32)\nr = reshape(f, shape=[2, 12])\ns = neg(r)\nout s\n",
                           "f = cast(x, dtype=f32)\nr = reshape(f, shape=[2, 12])\nt = transpose(r, perm=[1, "
                           "0])\ns = add(t, 1)\n"
                           "u = mul(f, 2)\nout s, u\n",
                           "f = cast(x, dtype=f32)\nr = slice(f, start=[0, 3], stop=[4, 6])\nb = "
                           "broadcast(r, shape=[5, 4, 3])\nout b\n",
                           // Behind what computes: its result is rounded, then moved.
                           "s = exp(y)\nr = reshape(s, shape=[24])\nh = cast(r, dtype=bf16)\nout h\n",
                           "s = exp(y)\nr = reshape(s, shape=[2, 12])\nt = transpose(r, perm=[1, 0])\nh = "
                           "cast(t, dtype=f16)\nout h\n",
                           "f = cast(x, dtype=f32)\ns = exp(f)\nr = reshape(s, shape=[24])\nh = cast(r, "
                           "dtype=bf16)\nk = cast(h, dtype=f32)\n"
                           "m = reshape(k, shape=[6, 4])\nout m\n"}) {
    const Graph graph = graph_of(kInputs + rest), made = narrow_movements(graph);
    assert_computes_the_same(graph, made);
    if (wide_movements(made) != 0) fail_test(print_graph(made));
  }
}

void others_stay(void**) {
  for (const char* rest :
       {"r = reshape(y, shape=[24])\nh = cast(r, dtype=bf16)\nout h\n",  // where it lies
        "s = exp(y)\nr = reshape(s, shape=[24])\nh = cast(r, dtype=bf16)\nout h, r\n",
        "s = exp(y)\nr = reshape(s, shape=[24])\nh = cast(r, dtype=bf16)\nout h, s\n",
        "s = exp(y)\nr = reshape(s, shape=[24])\nh = cast(r, dtype=bf16)\nk = neg(r)\nout h, k\n",
        "f = cast(x, dtype=f32)\ns = exp(f)\nr = reshape(s, shape=[24])\nout r\n"}) {
    const Graph graph = graph_of(kInputs + rest);
    assert_stays(graph, narrow_movements);
  }
}

void random_graphs_stay_the_same(void**) { assert_random_graphs_compute_the_same(narrow_movements); }

// A reshape of what is cast is no kernel: what reads it reads the input where it lies.
void a_cast_and_a_reshape_are_no_kernel(void**) {
  const MuGraph best = best_of_search(
      graph_of("graph g\nin x: f16[16, 4096]\nf = cast(x, dtype=f32)\nr = reshape(f, shape=[16, 8, 512])\n"
               "m = mean(r, axis=2, keepdims=true)\nd = sub(r, m)\nq = reshape(d, shape=[16, 4096])\n"
               "h = cast(q, dtype=f16)\nout h\n"));
  size_t kernels = 0;
  for (const MuKernel& kernel : best.kernels) kernels += kernel.custom || kernel.code == OpCode::cast;
  assert_int_equal(kernels, 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(movements_become_narrow), cmocka_unit_test(others_stay),
                              cmocka_unit_test(random_graphs_stay_the_same),
                              cmocka_unit_test(a_cast_and_a_reshape_are_no_kernel)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
