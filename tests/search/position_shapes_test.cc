// What positions decide is made in the shape that it is read in, and graphs compute the same.
#include "core/search/position_shapes.h"

#include "tests/search/same_graph.h"

namespace quern {

namespace {

const std::string kInputs =
    "graph g\nin x: f32[2, 1, 5, 7]\nin n: i32[2]\ni = iota(shape=[5, 7], axis=0)\nj = iota(shape=[5, 7], "
    "axis=1)\n";

// But those of inputs, which are read where they lie.
size_t reshapes(const Graph& graph) {
  std::vector<bool> lies(graph.nodes.size());
  size_t count = 0;
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.code == OpCode::reshape) lies[id] = lies[static_cast<size_t>(node.operands[0])];
    if (node.code == OpCode::input) lies[id] = true;
    count += node.code == OpCode::reshape && !lies[id];
  }
  return count;
}

void masks_are_made_in_their_shape(void**) {
  for (const char* rest :
       {// A mask that is added, with extents of 1 for batches and heads.
        "c = le(j, i)\nm = where(c, 0.0, -inf)\nh = cast(m, dtype=bf16)\nr = reshape(h, shape=[1, 1, 5, "
        "7])\ny = add(x, r)\nout y\n",
        "d = sub(i, j)\nc = lt(d, 3)\nr = reshape(c, shape=[1, 5, 1, 7])\ns = reshape(c, shape=[5, 1, 7, "
        "1])\nout r, s\n",
        // Of iotas of fewer dimensions, which are repeated.
        "k = iota(shape=[7], axis=0)\nc = le(k, i)\nb = broadcast(k, shape=[5, 7])\ne = add(b, i)\nw = "
        "where(c, e, 4)\n"
        "r = reshape(w, shape=[5, 1, 1, 7])\nout r\n",
        // Transposed, and out of extents of 1 again.
        "t = transpose(j, perm=[1, 0])\nu = add(t, 2)\nr = reshape(u, shape=[1, 7, 1, 5])\nq = reshape(r, "
        "shape=[7, 5])\nout q\n",
        // Of one index.
        "o = iota(shape=[1, 7], axis=0)\nc = le(o, j)\nr = reshape(c, shape=[5, 1, 7])\nout r\n"}) {
    const Graph graph = graph_of(kInputs + rest), made = reshape_positions(graph);
    assert_computes_the_same(graph, made);
    if (reshapes(made) != 0) fail_test(print_graph(made));
  }
}

// Lengths of sequences, which lie in memory, are read in another shape.
void lengths_are_reshaped_where_they_lie(void**) {
  const Graph graph = graph_of(
      "graph g\nin n: i32[2]\nin x: f32[2, 3, 7]\nj = iota(shape=[2, 7], axis=1)\nm = reshape(n, shape=[2, "
      "1])\nc = lt(j, m)\n"
      "r = reshape(c, shape=[2, 1, 7])\ny = where(r, x, -inf)\nout y\n");
  const Graph made = reshape_positions(graph);
  assert_computes_the_same(graph, made);
  assert_int_equal(reshapes(made), 0);
}

void others_stay(void**) {
  for (const char* rest : {"c = le(j, i)\nr = reshape(c, shape=[35])\nout r\n",  // joins dimensions
                           "f = cast(j, dtype=f32)\ny = add(x, f)\nr = reshape(y, shape=[2, 5, 7])\nout r\n",
                           "c = le(j, i)\nm = where(c, x, 0.0)\nout m\n"}) {
    const Graph graph = graph_of(kInputs + rest);
    assert_stays(graph, reshape_positions);
  }
}

void random_graphs_stay_the_same(void**) { assert_random_graphs_compute_the_same(reshape_positions); }

// A mask that is added is no tensor, whatever its shape: attention is one kernel.
void an_added_mask_is_no_kernel(void**) {
  const MuGraph best = best_of_search(graph_of(
      "graph g\nin q: bf16[1, 2, 32, 16]\nin k: bf16[1, 2, 32, 16]\nin v: bf16[1, 2, 32, 16]\n"
      "i = iota(shape=[32, 32], axis=0)\nj = iota(shape=[32, 32], axis=1)\nc = le(j, i)\n"
      "m = where(c, 0.0, -inf)\nh = cast(m, dtype=bf16)\nr = reshape(h, shape=[1, 1, 32, 32])\n"
      "kt = transpose(k, perm=[0, 1, 3, 2])\ns = matmul(q, kt)\na = add(s, r)\np = softmax(a, axis=-1)\n"
      "o = matmul(p, v)\nout o\n"));
  size_t kernels = 0;
  for (const MuKernel& kernel : best.kernels) {
    kernels += kernel.custom;
    for (const BlockOp& op : kernel.ops)
      if (op.is_load())
        assert_true(best.tensors[static_cast<size_t>(op.tensor())].numbered >= 0 ||
                    op.type.dtype == DType::bf16);
  }
  assert_int_equal(kernels, 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(masks_are_made_in_their_shape),
                              cmocka_unit_test(lengths_are_reshaped_where_they_lie),
                              cmocka_unit_test(others_stay), cmocka_unit_test(random_graphs_stay_the_same),
                              cmocka_unit_test(an_added_mask_is_no_kernel)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
