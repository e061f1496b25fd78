// Products of rows in several dimensions become products of matrices and compute the same, and others stay.
#include "core/search/flatten.h"

#include "core/mugraph/text.h"
#include "tests/search/same_graph.h"

namespace quern {

namespace {

const std::string kInputs =
    "graph g\nin x: f32[2, 3, 4]\nin w: f32[4, 8]\nin v: f32[8, 4]\nin g: f32[4]\nin b: f32[8]\nin r: f32[2, "
    "3, 8]\n"
    "in p: f32[3, 8]\nin c: f32[1, 1, 8]\nin m: f32[2, 3, 1]\nin q: f32[2, 2, 3, 4]\nin u: f32[2, 3, 4] "
    "strides [40, 8, 1]\n"
    "in z: f32[2, 3, 4] strides [24, 8, 1]\nin y: f32[2, 4, 8]\n";

int rank_of_products(const Graph& graph) {
  int64_t rank = 0;
  for (const Node& node : graph.nodes)
    if (node.code == OpCode::matmul) rank = std::max<int64_t>(rank, node.type.rank());
  return static_cast<int>(rank);
}

void rows_come_into_one_dimension(void**) {
  const char* kRests[] = {
      "h = matmul(x, w)\nout h\n",
      // A bias, a residual, numbers, what a row has one of, norms in front and softmax behind, and a second product.
      "n = rms_norm(x, g)\nh = matmul(n, w)\na = add(h, b)\nd = add(a, r)\ne = mul(d, c)\nf = mul(e, m)\ns = "
      "softmax(f)\no = matmul(s, v)\nk = mul(o, 0.5)\nj = add(k, x)\nout j\n",
      "h = matmul(x, w)\nt = sum(h, axis=2, keepdims=true)\nk = div(h, t)\ni = cast(k, dtype=f16)\nout i, "
      "h\n",
      // Reshapes in front and behind, and of both kinds at once.
      "i = reshape(x, shape=[2, 12])\nj = reshape(i, shape=[2, 3, 4])\nh = matmul(j, w)\nk = reshape(h, "
      "shape=[2, 3, 2, "
      "4])\nt = transpose(k, perm=[0, 2, 1, 3])\nl = reshape(h, shape=[6, 8])\nout t, l, j\n",
      "h = matmul(x, w)\nk = reshape(h, shape=[6, 8])\ne = exp(k)\nl = reshape(k, shape=[2, 3, 8])\no = "
      "matmul(l, v)\nout e, o\n",
      // Sums over rows, and what a matrix has one of, where these have few.
      "h = matmul(x, w)\na = add(h, p)\ns = sum(a, axis=1)\nout s\n",
      "h = matmul(x, w)\nq1 = square(h)\ns = sum(q1, axis=1, keepdims=true)\nk = mul(h, s)\no = matmul(k, "
      "v)\nout o\n",
      // What has other rows, reads along them, or takes a part.
      "h = matmul(x, w)\ns = slice(h, start=[0, 0, 0], stop=[2, 3, 4])\nk = concat(s, x, axis=2)\nout k\n",
      "h = matmul(q, w)\nout h\n", "h = matmul(z, w)\nout h\n", "e = exp(u)\nh = matmul(e, w)\nout h\n",
      "e = exp(x)\nh = matmul(e, w)\nk = matmul(x, w)\nl = mul(h, k)\nout l, e\n"};
  for (const char* rest : kRests) {
    const Graph graph = graph_of(kInputs + rest), made = flatten_rows(graph);
    assert_computes_the_same(graph, made);
    assert_int_equal(rank_of_products(made), 2);
  }
}

void other_products_stay(void**) {
  const char* kRests[] = {
      // Another product reads it, or is read, with its rows in two dimensions.
      "h = matmul(x, w)\nk = exp(h)\nt = transpose(y, perm=[0, 2, 1])\ns = matmul(k, t)\nout s\n",
      "a = matmul(r, t)\nh = matmul(a, w)\nout h\n",
      // Positions have something each; sums over them; weights a batch each; strides apart.
      "h = matmul(x, y)\nout h\n", "h = matmul(u, w)\nout h\n", "h = matmul(w, v)\nout h\n"};
  for (const char* rest : kRests) {
    std::string text = rest;
    if (text.rfind("a = matmul", 0) == 0) text = "t = transpose(y, perm=[0, 2, 1])\n" + text;
    const Graph graph = graph_of(kInputs + text);
    assert_stays(graph, flatten_rows);
  }
}

// Matrices that have enough rows keep what is summed over these; what others alone need stays as it is.
void sums_over_many_rows_stay(void**) {
  auto text = [](int rows) {
    const std::string extent = std::to_string(rows);
    return "graph g\nin x: f32[4, " + extent + ", 8]\nin w: f32[8, 16]\nh = matmul(x, w)\na = square(h)\n" +
           "s = sum(a, axis=1)\nout s, h\n";
  };
  const Graph many = graph_of(text(64)), few = graph_of(text(48)), made = flatten_rows(few);
  assert_text_equal(print_graph(flatten_rows(many)), print_graph(many));
  assert_computes_the_same(few, made);
  for (const Node& node : made.nodes) {
    if (node.code == OpCode::matmul) assert_int_equal(node.type.rank(), 2);
    if (node.code == OpCode::square) assert_int_equal(node.type.rank(), 3);
  }
}

// Each value of a long chain reads the two before it: what is computed of a product is looked at once, not on each of the ways to it.
void chains_that_meet_again_take_no_time(void**) {
  std::string text =
      "graph g\nin x: f32[4, 8, 8]\nin p: f32[8, 16]\nin w: f32[8, 16]\nh = matmul(x, w)\nv0 = add(h, p)\nv1 "
      "= mul(v0, p)\n";
  for (int i = 2; i < 100; ++i)
    text +=
        "v" + std::to_string(i) + " = add(v" + std::to_string(i - 1) + ", v" + std::to_string(i - 2) + ")\n";
  const Graph graph = graph_of(text + "out v99\n"), made = flatten_rows(graph);
  assert_true(std::any_of(made.nodes.begin(), made.nodes.end(), [](const Node& node) {
    return node.code == OpCode::matmul && node.type.rank() == 2;
  }));
}

void random_graphs_stay_the_same(void**) { assert_random_graphs_compute_the_same(flatten_rows); }

// A product of odd rows in batches is one of a matrix, and its bias is added where it is made.
void odd_rows_and_their_bias_share_a_kernel(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[3, 77, 64]\nin w: f16[64, 128]\nin b: f16[128]\nh = matmul(x, w)\ny = add(h, "
      "b)\nout y\n");
  const MuGraph best = best_of_search(graph);
  int kernels = 0;
  int64_t products = 0;
  for (const MuKernel& kernel : best.kernels) {
    kernels += kernel.custom;
    products += std::count_if(kernel.ops.begin(), kernel.ops.end(), [](const BlockOp& op) {
      return op.kind() == BlockOp::Kind::compute && op.code() == OpCode::matmul;
    });
  }
  assert_int_equal(kernels, 1);
  assert_int_equal(products, 1);
  // It finds x where it lies, which has to be dense for that: its text says so, too.
  const Result<MuGraph> again = parse_mugraph(print_mugraph(best));
  assert_ok(again);
  for (const MuGraph* each : {&best, &*again}) {
    const auto x = static_cast<size_t>(each->inputs[0]);
    assert_true(each->tensors[x].dense);
    assert_true(std::any_of(each->tensors.begin(), each->tensors.end(), [&](const MuTensor& tensor) {
      return tensor.view.source == static_cast<int32_t>(x) && tensor.type.rank() == 2;
    }));
  }
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(rows_come_into_one_dimension),
                              cmocka_unit_test(other_products_stay),
                              cmocka_unit_test(sums_over_many_rows_stay),
                              cmocka_unit_test(chains_that_meet_again_take_no_time),
                              cmocka_unit_test(random_graphs_stay_the_same),
                              cmocka_unit_test(odd_rows_and_their_bias_share_a_kernel)};
  return cmocka_run_group_tests_name("flatten", tests, nullptr, nullptr);
}
