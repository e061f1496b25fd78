// Packed products that slices take apart become products of their own and compute the same, and others stay.
#include "core/search/unpack.h"

#include "core/search/search.h"
#include "core/verify/verifier.h"
#include "tests/search/same_graph.h"

namespace quern {

namespace {

int products_of(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [](const Node& node) { return node.code == OpCode::matmul; }));
}

const std::string kInputs =
    "graph g\nin x: f32[2, 3, 4]\nin w: f32[4, 8]\nin u: f32[4, 12]\nin v: f32[8, 4]\nin b: f32[8]\n"
    "in r: f32[2, 3, 8]\nin c: f32[8, 1]\n";

// Columns of `of`, [2, 3, n].
std::string columns(const std::string& name, const std::string& of, int first, int last) {
  return name + " = slice(" + of + ", start=[0, 0, " + std::to_string(first) + "], stop=[2, 3, " +
         std::to_string(last) + "])\n";
}
// Those of h, [2, 3, 8].
std::string halves() { return columns("g", "h", 0, 4) + columns("k", "h", 4, 8); }

void packed_products_are_taken_apart(void**) {
  const std::pair<int, std::string> kRests[] = {
      {2, "h = matmul(x, w)\n" + halves() + "s = silu(g)\ny = mul(s, k)\nout y\n"},
      // A bias, a residual, a number and a cast are computed for each; weights may be transposed.
      {2, "t = transpose(v, perm=[1, 0])\nm = matmul(x, t)\na = add(m, b)\ne = exp(r)\nd = add(a, e)\n"
          "n = mul(d, 0.5)\nh = cast(n, dtype=f16)\n" + halves() + "s = gelu(k)\ny = mul(s, g)\nout y, e\n"},
      // Rows, with a bias of them, beside columns of another one.
      {4, "t = transpose(x, perm=[0, 2, 1])\nn = matmul(v, t)\na = add(n, c)\n"
          "p = slice(a, start=[0, 0, 0], stop=[2, 4, 3])\nq = slice(a, start=[0, 4, 0], stop=[2, 8, 3])\n"
          "s = sigmoid(p)\nz = mul(s, q)\nh = matmul(x, w)\n" + halves() + "y = mul(g, k)\nout y, z\n"},
      {3, "h = matmul(x, u)\n" + columns("p", "h", 0, 4) + columns("q", "h", 4, 8) + columns("o", "h", 8, 12) +
          "s = sigmoid(p)\ny = mul(s, q)\nz = add(y, o)\nout z\n"},
      // What stands between the product and the slices may be read twice there.
      {2, "m = matmul(x, w)\nt = tanh(m)\nh = mul(m, t)\n" + halves() + "y = sub(g, k)\nout y\n"},
      // What no slice takes is not computed; a slice may be read twice, and by others.
      {2, "h = matmul(x, u)\n" + columns("g", "h", 0, 4) + columns("k", "h", 8, 12) +
          "y = mul(g, k)\nz = softmax(g)\nout y, z, g\n"}};
  for (const auto& [products, rest] : kRests) {
    const Graph graph = graph_of(kInputs + rest);
    const std::optional<Graph> made = unpack_products(graph);
    assert_true(made.has_value());
    assert_computes_the_same(graph, *made);
    assert_int_equal(products_of(*made), products);
  }
}

void others_stay(void**) {
  const std::string kRests[] = {
      // Read by somebody else, or asked for: behind elementwise operators, too.
      "h = matmul(x, w)\n" + halves() + "y = mul(g, k)\nout y, h\n",
      "h = matmul(x, w)\n" + halves() + "y = mul(g, k)\nz = softmax(h)\nout y, z\n",
      "m = matmul(x, w)\nh = add(m, b)\n" + halves() + "y = mul(g, k)\nz = softmax(m)\nout y, z\n",
      "m = matmul(x, w)\nh = add(m, b)\n" + halves() + "y = mul(g, k)\nout y, m\n",
      // Slices that never meet, as queries and keys, or meet in a product.
      "h = matmul(x, w)\n" + halves() + "y = exp(g)\nz = softmax(k)\nout y, z\n",
      "h = matmul(x, w)\n" + halves() + "t = transpose(k, perm=[0, 2, 1])\ny = matmul(g, t)\nout y\n",
      // Other extents, a part of both dimensions, steps, batches, and off 16 bytes, where the operand would be copied.
      "h = matmul(x, u)\n" + columns("g", "h", 0, 8) + columns("k", "h", 8, 9) + "y = mul(g, k)\nout y\n",
      "h = matmul(x, w)\ng = slice(h, start=[0, 0, 0], stop=[2, 2, 4])\nk = slice(h, start=[0, 0, 4], stop=[2, 2, 8])\n"
      "y = mul(g, k)\nout y\n",
      "h = matmul(x, w)\ng = slice(h, start=[0, 0, 0], stop=[2, 3, 8], step=[1, 1, 2])\n"
      "k = slice(h, start=[0, 0, 1], stop=[2, 3, 8], step=[1, 1, 2])\ny = mul(g, k)\nout y\n",
      "h = matmul(x, w)\ng = slice(h, start=[0, 0, 0], stop=[1, 3, 8])\nk = slice(h, start=[1, 0, 0], stop=[2, 3, 8])\n"
      "y = mul(g, k)\nout y\n",
      "h = matmul(x, w)\n" + columns("g", "h", 0, 3) + columns("k", "h", 3, 6) + "y = mul(g, k)\nout y\n",
      // No product, and more of them than a kernel is searched for.
      "h = exp(r)\n" + halves() + "y = mul(g, k)\nout y\n",
      "m = matmul(x, w)\nn = matmul(r, v)\no = matmul(n, w)\nh = add(m, o)\n" + halves() + "y = mul(g, k)\nout y\n"};
  for (const std::string& rest : kRests) assert_true(!unpack_products(graph_of(kInputs + rest)));
}

// A gated MLP with one tensor of weights is one kernel, with two products in its loop; among the others is one product, and what
// takes it apart.
void a_packed_gate_is_one_kernel(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[64, 512]\nin w: f16[512, 2048]\nin b: f16[2048]\nm = matmul(x, w)\nh = add(m, b)\n"
      "g = slice(h, start=[0, 0], stop=[64, 1024])\nu = slice(h, start=[0, 1024], stop=[64, 2048])\ns = "
      "gelu(g)\ny = mul(s, u)\nout y\n");
  const auto found = search(graph, **find_target("sm_90a"), {});
  assert_ok(found);
  std::set<std::pair<int, int64_t>> kinds;  // kernels, and products in all of them
  for (const Candidate& candidate : found->candidates) {
    assert_int_equal(verify(graph, candidate.mugraph).verdict, Verdict::accepted);
    int kernels = 0;
    int64_t products = 0;
    for (const MuKernel& kernel : candidate.mugraph.kernels) {
      kernels += kernel.custom;
      products += std::count_if(kernel.ops.begin(), kernel.ops.end(), [](const BlockOp& op) {
        return op.kind() == BlockOp::Kind::compute && op.code() == OpCode::matmul;
      });
    }
    kinds.insert({kernels, products});
  }
  assert_true(kinds.count({1, 2}) && kinds.count({2, 1}));
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(packed_products_are_taken_apart),
                              cmocka_unit_test(others_stay), cmocka_unit_test(a_packed_gate_is_one_kernel)};
  return cmocka_run_group_tests_name("unpack", tests, nullptr, nullptr);
}
