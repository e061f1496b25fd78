// Small instances: what stays equal, what stays different, what is kept, and that any graph comes out valid.
#include "core/graph/shrink.h"

#include <algorithm>

#include "core/graph/text.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

using namespace quern;

namespace {

Graph parsed(std::string_view text) {
  Result<Graph> graph = parse_graph(text);
  assert_ok(graph);
  return *graph;
}

std::string shrunk(std::string_view text, int64_t max_extent) {
  Result<Graph> small = shrink(parsed(text), max_extent);
  assert_ok(small);
  return print_graph(*small);
}

void shortens_what_operators_make_equal(void**) {
  assert_text_equal(
      shrunk(
          "graph g\nin x: f16[16, 4096]\nin w: f16[4096, 6144]\ny = rms_norm(x)\nz = matmul(y, w)\nout z\n",
          64),
      "graph g\nin x: f16[16, 48]\nin w: f16[48, 64]\ny = rms_norm(x, axis=[1], eps=1e-05)\n"
      "z = matmul(y, w)\nout z\n");
}

void keeps_ragged_extents_ragged(void**) {
  // 64 has the tile 16; 4095 = 15 modulo 16, 33 is short enough.
  assert_text_equal(shrunk("graph g\nin x: f32[33, 4095]\ny = exp(x)\nout y\n", 64),
                    "graph g\nin x: f32[33, 63]\ny = exp(x)\nout y\n");
}

void keeps_what_is_short_enough(void**) {
  const char* text = "graph g\nin x: f32[0, 1, 64]\ny = sum(x, axis=[2], keepdims=true)\nout y\n";
  assert_text_equal(shrunk(text, 64), print_graph(parsed(text)));
}

void unrelated_dimensions_of_one_extent_stay_alike(void**) {
  assert_text_equal(shrunk("graph g\nin x: f32[100]\nin y: f32[100]\na = neg(x)\nb = neg(y)\nout a, b\n", 16),
                    "graph g\nin x: f32[16]\nin y: f32[16]\na = neg(x)\nb = neg(y)\nout a, b\n");
}

void joined_and_split_dimensions_stay_products(void**) {
  assert_text_equal(
      shrunk("graph g\nin x: f16[8, 4096]\nin w: f16[4096]\nh = reshape(x, shape=[8, 32, 128])\n"
             "t = transpose(h, perm=[1, 0, 2])\nf = reshape(t, shape=[256, 128])\ny = mul(x, w)\nout f, y\n",
             16),
      "graph g\nin x: f16[8, 192]\nin w: f16[192]\nh = reshape(x, shape=[8, 12, 16])\n"
      "t = transpose(h, perm=[1, 0, 2])\nf = reshape(t, shape=[96, 16])\ny = mul(x, w)\nout f, y\n");
}

void halves_stay_halves(void**) {
  assert_text_equal(
      shrunk("graph g\nin x: f32[4, 256]\na = slice(x, stop=[4, 128])\nb = slice(x, start=[0, 128])\n"
             "c = mul(a, b)\nd = concat(b, a, axis=1)\ne = add(d, x)\nout c, e\n",
             16),
      "graph g\nin x: f32[4, 32]\na = slice(x, start=[0, 0], stop=[4, 16], step=[1, 1])\n"
      "b = slice(x, start=[0, 16], stop=[4, 32], step=[1, 1])\nc = mul(a, b)\n"
      "d = concat(b, a, axis=[1])\ne = add(d, x)\nout c, e\n");
}

void keeps_what_has_no_consistent_choice(void**) {
  // 12 x 20 read as 15 x 16: no extents but these fit; the other dimension still shrinks.
  const std::string text =
      shrunk("graph g\nin x: f32[12, 20, 100]\ny = reshape(x, shape=[15, 16, 100])\nout y\n", 8);
  assert_contains(text, "in x: f32[12, 20, 8]");
  assert_contains(text, "shape=[15, 16, 8]");
}

void keeps_the_order_and_overlap_of_strides(void**) {
  const std::string text = shrunk(
      "graph g\nin a: f16[512, 256] strides[1, 512]\nin b: f16[512, 256] strides[0, 1]\nin c: f16[512, 256] "
      "strides[1000, 1]\n"
      "s = add(a, b)\nt = add(s, c)\nout t\n",
      64);
  assert_contains(text, "a: f16[64, 48] strides[1, 64]");
  assert_contains(text, "b: f16[64, 48] strides[0, 1]");
  assert_contains(text, "c: f16[64, 48] strides[120, 1]");  // a gap of 744 = 8 modulo 16 becomes 64 + 8
}

void benchmark_graphs_become_small(void**) {
  for (const auto& file : std::filesystem::directory_iterator(test_root() / "examples")) {
    if (file.path().extension() != ".qg") continue;
    const Graph graph = parsed(read_test_file(file.path()));
    Result<Graph> small = shrink(graph, 64);
    assert_ok(small);
    assert_true(small->nodes.size() == graph.nodes.size());
    for (const Node& node : small->nodes)
      for (int64_t extent : node.type.shape) assert_true(extent <= 64);
    assert_true(work(*small) <= 32.0 * 64 * 64 * 64 * 4);
  }
}

void any_graph_stays_valid_and_itself(void**) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Graph graph = random_graph(seed);
    for (int64_t max_extent : {1, 3, 8, 20}) {
      Result<Graph> small = shrink(graph, max_extent);
      assert_ok(small);
      assert_ok(parse_graph(print_graph(*small)));
      assert_true(work(*small) <= work(graph));
      assert_true(small->inputs == graph.inputs && small->outputs == graph.outputs);
      for (size_t id = 0; id < graph.nodes.size(); ++id) {
        const Node &was = graph.nodes[id], &is = small->nodes[id];
        assert_true(was.code == is.code && was.operands == is.operands && was.name == is.name);
        assert_true(was.type.dtype == is.type.dtype && was.type.rank() == is.type.rank());
        for (int d = 0; d < was.type.rank(); ++d) {
          assert_true(is.type.shape[d] <= was.type.shape[d]);
          assert_true((is.type.shape[d] == 0) == (was.type.shape[d] == 0));
        }
      }
    }
  }
}

void shrinking_twice_changes_nothing(void**) {
  const Graph graph =
      parsed("graph g\nin x: f16[16, 4097]\nin w: f16[4097, 6144]\nz = matmul(x, w)\nout z\n");
  const Graph once = *shrink(graph, 32);
  assert_text_equal(print_graph(*shrink(once, 32)), print_graph(once));
}

void refuses_extents_below_one(void**) {
  assert_error(shrink(parsed("graph g\nin x: f32[3]\nout x\n"), 0), ErrorCode::INVALID_ARGUMENT,
               "extents of 0");
}

void work_counts_multiplications_and_leaves_out_dead_code(void**) {
  assert_true(
      work(parsed("graph g\nin x: f32[3, 5]\nin w: f32[5, 7]\nd = exp(x)\nz = matmul(x, w)\nout z\n")) ==
      3 * 5 * 7 + 3 * 5 + 5 * 7);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(shortens_what_operators_make_equal),
      cmocka_unit_test(keeps_ragged_extents_ragged),
      cmocka_unit_test(keeps_what_is_short_enough),
      cmocka_unit_test(unrelated_dimensions_of_one_extent_stay_alike),
      cmocka_unit_test(joined_and_split_dimensions_stay_products),
      cmocka_unit_test(halves_stay_halves),
      cmocka_unit_test(keeps_what_has_no_consistent_choice),
      cmocka_unit_test(keeps_the_order_and_overlap_of_strides),
      cmocka_unit_test(benchmark_graphs_become_small),
      cmocka_unit_test(any_graph_stays_valid_and_itself),
      cmocka_unit_test(shrinking_twice_changes_nothing),
      cmocka_unit_test(refuses_extents_below_one),
      cmocka_unit_test(work_counts_multiplications_and_leaves_out_dead_code),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
