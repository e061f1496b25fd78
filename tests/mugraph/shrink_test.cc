// Small instances of muGraphs: what must stay, and what must become small.
#include "core/mugraph/shrink.h"

#include "core/graph/shrink.h"
#include "core/mugraph/extents.h"
#include "tests/mugraph/files.h"

using namespace quern;

namespace {

Instance shrunk(const std::string& graph, const std::string& mugraph) {
  Result<Graph> g = parse_graph(graph);
  assert_ok(g);
  Result<MuGraph> m = parse_mugraph(mugraph);
  assert_ok(m);
  Result<Instance> small = shrink(*m, *g);
  assert_ok(small);
  return *small;
}

// What must hold of the pair, whatever the programs are.
void assert_small_instance(const MuGraphFile& file, const Instance& small) {
  assert_ok(parse_mugraph(print_mugraph(small.mugraph)));
  assert_ok(parse_graph(print_graph(small.graph)));
  auto kept = [&](int64_t was, int64_t is) {
    if (was < 2 ? is != was : is < 2 || is > was)
      fail_test(file.name + ": " + std::to_string(was) + " has become " + std::to_string(is));
  };
  for (size_t t = 0; t < file.mugraph.tensors.size(); ++t)
    for (size_t d = 0; d < file.mugraph.tensors[t].type.shape.size(); ++d)
      kept(file.mugraph.tensors[t].type.shape[d], small.mugraph.tensors[t].type.shape[d]);
  for (size_t k = 0; k < file.mugraph.kernels.size(); ++k) {
    const MuKernel &was = file.mugraph.kernels[k], &is = small.mugraph.kernels[k];
    for (size_t axis = 0; axis < was.grid.size(); ++axis) kept(was.grid[axis], is.grid[axis]);
    kept(was.trip_count, is.trip_count);
    for (size_t i = 0; i < was.ops.size(); ++i)
      for (size_t d = 0; d < was.ops[i].type.shape.size(); ++d)
        kept(was.ops[i].type.shape[d], is.ops[i].type.shape[d]);
  }
}

void hand_written_files_become_small(void**) {
  for (const MuGraphFile& file : mugraph_files()) {
    Result<Instance> small = shrink(file.mugraph, file.graph);
    if (!small) fail_test(file.name + ": " + small.status().message());
    assert_small_instance(file, *small);
    if (!(work(small->mugraph) + work(small->graph) < 20'000)) fail_test(file.name + " has stayed large");
  }
}

constexpr const char* kRaggedGraph =
    "graph g\nin x: f32[4, 100]\ny = exp(x)\nz = sum(y, axis=1, keepdims=true)\nout z\n";

void ragged_edges_stay_ragged(void**) {
  // 100 in 8 parts is tiles of 13; in 4 iterations of the second kernel it is even.
  const Instance small = shrunk(
      kRaggedGraph,
      "mugraph g\nin x: f32[4, 100]\ntensor y: f32[4, 100]\ntensor z: f32[4, 1]\nkernel grid=[8] {\na = "
      "load(x, "
      "x=1)\nb = exp(a)\nstore(b, y, x=1)\n}\nkernel loop=4 {\na = load(y, loop=1)\nb = sum(a, axis=1, "
      "keepdims=true)\nc = accumulate_sum(b)\nstore(c, z)\n}\nout z\n");
  const int64_t extent = small.mugraph.tensors[0].type.shape[1];
  assert_true(extent % small.mugraph.kernels[0].grid[0] != 0);
  assert_true(extent % small.mugraph.kernels[1].trip_count == 0);
}

void counts_follow_their_extents(void**) {
  const Instance small = shrunk(
      "graph g\nin x: f32[4, 4096]\nz = mean(x, axis=1, keepdims=true)\nout z\n",
      "mugraph g\nin x: f32[4, 4096]\ntensor z: f32[4, 1]\nkernel loop=4 {\na = load(x, loop=1)\nb = sum(a, "
      "axis=1, keepdims=true)\nc = accumulate_sum(b)\nn = extent(x[1])\nd = div(c, n)\nstore(d, z)\n}\nout "
      "z\n");
  assert_contains(print_mugraph(small.mugraph), "n = extent(x[1])");
  assert_true(small.graph.node(small.graph.inputs[0]).type.shape == small.mugraph.tensors[0].type.shape);
}

void halves_and_reshapes_follow(void**) {
  const Instance small = shrunk(
      "graph g\nin x: f32[64, 512]\na = slice(x, stop=[64, 256])\nb = slice(x, start=[0, 256])\nc = mul(a, "
      "b)\nd = "
      "reshape(c, shape=[64, 8, 32])\ne = sum(d, axis=1)\nout e\n",
      "mugraph g\nin x: f32[64, 512]\ntensor e: f32[64, 32]\nkernel grid=[16] {\nt = load(x, x=0)\na = "
      "slice(t, start=[0, "
      "0], stop=[4, 256])\nb = slice(t, start=[0, 256], stop=[4, 512])\nc = mul(a, b)\nd = reshape(c, "
      "shape=[4, 8, 32])\ns = "
      "sum(d, axis=1)\nstore(s, e, x=0)\n}\nout e\n");
  const Ints& shape = small.mugraph.tensors[0].type.shape;
  assert_true(shape[0] <= 8 && shape[1] <= 64 && shape[1] % 2 == 0);
}

// A dimension that is neither of inputs nor of outputs: slots that are summed over.
void what_positions_count_is_the_same(void**) {
  const Graph graph = graph_of(
      "graph g\nin s: i32[64, 1]\ni = iota(shape=[1, 192], axis=1)\ne = eq(s, i)\nf = cast(e, dtype=f32)\n"
      "t = sum(f, axis=1)\nout t\n");
  const MuGraph mugraph = mugraph_of(
      "mugraph g\nin s: i32[64, 1]\ntensor i: i32[1, 192]\ntensor f: f32[64, 192]\ntensor t: f32[64]\n"
      "i = iota(axis=[1], shape=[1, 192], dtype=i32)\nkernel grid=[16, 6] {\na = load(s, x=0)\nb = load(i, "
      "y=1)\n"
      "c = eq(a, b)\nd = cast(c, dtype=f32)\nstore(d, f, x=0, y=1)\n}\nkernel grid=[16] {\na = load(f, x=0)\n"
      "b = sum(a, axis=1)\nstore(b, t, x=0)\n}\nout t\n");
  const auto small = shrink(mugraph, graph, true);
  assert_ok(small);
  assert_true(small->graph_iotas.by_one == small->mugraph_iotas.by_one);
  assert_true(small->graph_iotas.in_strides == small->mugraph_iotas.in_strides);
  assert_true(small->graph_iotas.by_one.size() == 1 && small->graph_iotas.by_one[0].size() < 192);
}

void what_no_choice_fits_stays(void**) {
  // Every third column, of which the last stands alone: the program has no small instance in this dimension, but in the other.
  const Instance small = shrunk("graph g\nin x: f32[64, 100]\na = slice(x, step=[1, 3])\nout a\n",
                                "mugraph g\nin x: f32[64, 100]\ntensor a: f32[64, 34]\nkernel grid=[16] {\nt "
                                "= load(x, x=0)\nb = slice(t, "
                                "step=[1, 3])\nstore(b, a, x=0)\n}\nout a\n");
  assert_true(small.mugraph.tensors[0].type.shape[1] == 100 && small.mugraph.tensors[0].type.shape[0] <= 8);
}

// Every second column, from the second on, and every fourth of these from the third on.
void whole_steps_become_few(void**) {
  const Instance small = shrunk(
      "graph g\nin x: f32[64, 96]\na = slice(x, start=[0, 1], step=[1, 2])\nb = slice(a, start=[0, 2], "
      "step=[1, 4])\nout b\n",
      "mugraph g\nin x: f32[64, 96]\ntensor a: f32[64, 48]\ntensor b: f32[64, 12]\n"
      "a = slice(x, start=[0, 1], stop=[64, 96], step=[1, 2])\nkernel grid=[16] {\nt = load(a, x=0)\n"
      "s = slice(t, start=[0, 2], stop=[4, 48], step=[1, 4])\nstore(s, b, x=0)\n}\nout b\n");
  const Ints& shape = small.mugraph.tensors[0].type.shape;
  assert_true(shape[1] <= 32 && shape[1] == 8 * small.mugraph.tensors[2].type.shape[1]);
  const Graph& graph = small.graph;
  const Attrs& first = graph.node(graph.node(graph.outputs[0]).operands[0]).attrs;
  assert_int_equal((*first.start)[1], 1);
  assert_int_equal((*first.stop)[1], shape[1]);
  assert_int_equal((*first.step)[1], 2);
}

void tiles_stay_with_what_stays(void**) {
  // Every third column again, with columns in tiles of 32: four of 100, and not of 25.
  const Instance small =
      shrunk("graph g\nin x: f32[64, 100]\na = slice(x, step=[1, 3])\nb = exp(x)\nout a, b\n",
             "mugraph g\nin x: f32[64, 100]\ntensor a: f32[64, 34]\ntensor b: f32[64, 100]\n"
             "a = slice(x, start=[0, 0], stop=[64, 100], step=[1, 3])\n"
             "kernel grid=[4] tiles=[32, 0, 0, 0, 0] {\nt = load(x, x=1)\ne = exp(t)\nstore(e, b, x=1)\n}\n"
             "out a, b\n");
  assert_int_equal(small.mugraph.tensors[0].type.shape[1], 100);
  assert_int_equal(small.mugraph.kernels[1].tiles[0], 32);
  assert_int_equal(small.mugraph.kernels[1].ops[0].type.shape[1], 32);
}

// Rows of a batch are cut into uneven parts; columns that have to do with them are cut in many ways.
void uneven_parts_of_what_is_even(void**) {
  Extents extents;
  const auto parts = extents.add(5, Extents::Role::axis), tile = extents.add(32, Extents::Role::tile);
  const auto rows = extents.add(154, Extents::Role::whole), columns = extents.add(640, Extents::Role::whole),
             batch = extents.add(2, Extents::Role::whole), row = extents.add(77, Extents::Role::whole),
             all = extents.add(154 * 640, Extents::Role::whole);
  extents.product({rows}, {batch, row});
  extents.product({all}, {rows, columns});
  extents.cut(rows, parts, tile);
  for (int i = 0; i < 12; ++i)
    extents.cut(columns, extents.add(10, Extents::Role::axis), extents.add(64, Extents::Role::tile));
  extents.solve();
  assert_int_equal(extents.value(rows), extents.value(batch) * extents.value(row));
  assert_true(extents.value(rows) <= 32 && extents.value(columns) <= 32);
  assert_true(extents.value(tile) == (extents.value(rows) + extents.value(parts) - 1) / extents.value(parts));
  assert_true(extents.value(tile) * extents.value(parts) != extents.value(rows));
}

// A small tile of six rows that are packed: two of its parts hold no six of what other things cut in two. The axis is chosen long
// before these.
void small_tiles_of_what_is_packed(void**) {
  Extents extents;
  const auto parts = extents.add(864, Extents::Role::axis), tile = extents.add(8, Extents::Role::tile);
  const auto packed = extents.add(6912, Extents::Role::whole), row = extents.add(1152, Extents::Role::whole);
  extents.sum(packed, {row, row, row, row, row, row});
  extents.cut(packed, parts, tile);
  for (int i = 0; i < 16; ++i)
    extents.cut(row, extents.add(18, Extents::Role::axis), extents.add(64, Extents::Role::tile));
  extents.cut(row, extents.add(5, Extents::Role::axis), extents.add(231, Extents::Role::tile));
  extents.solve();
  assert_true(extents.value(row) <= 16 && extents.value(packed) == 6 * extents.value(row));
  assert_true(extents.value(tile) <= 8 &&
              extents.value(tile) * extents.value(parts) == extents.value(packed));
}

// Six rows that slices part, in two tiles of four, stay as they are. Of columns whose last tile is short, and of pairs of heads,
// which no two even tiles leave a rest of, the last tile stays shorter.
void last_tiles_that_are_short(void**) {
  Extents extents;
  const auto rows = extents.add(6, Extents::Role::whole), columns = extents.add(1152, Extents::Role::whole),
             packed = extents.add(6912, Extents::Role::whole);
  std::vector<Extents::Var> single;
  for (int i = 0; i < 6; ++i) single.push_back(extents.add(1, Extents::Role::whole));
  extents.sum(rows, single);
  extents.product({packed}, {rows, columns});
  const auto row_tiles = extents.add(2, Extents::Role::axis), row_tile = extents.add(4, Extents::Role::tile);
  extents.cut(rows, row_tiles, row_tile);
  const auto tiles = extents.add(10, Extents::Role::axis), tile = extents.add(120, Extents::Role::tile);
  extents.cut(columns, tiles, tile);
  extents.cut(columns, extents.add(18, Extents::Role::axis), extents.add(64, Extents::Role::tile));
  const auto heads = extents.add(48, Extents::Role::whole), pairs = extents.add(24, Extents::Role::whole),
             both = extents.add(2, Extents::Role::whole), head_tiles = extents.add(2, Extents::Role::axis),
             head_tile = extents.add(32, Extents::Role::tile);
  extents.product({heads}, {pairs, both});
  extents.cut(heads, head_tiles, head_tile);
  extents.solve();
  auto leaves_rest = [&](Extents::Var whole, Extents::Var tiles, Extents::Var tile) {
    const int64_t lacking = extents.value(tiles) * extents.value(tile) - extents.value(whole);
    return 0 < lacking && lacking < extents.value(tile);
  };
  assert_int_equal(extents.value(rows), 6);
  assert_int_equal(extents.value(row_tiles), 2);
  assert_int_equal(extents.value(row_tile), 4);
  assert_true(extents.value(columns) <= 32 && extents.value(packed) == 6 * extents.value(columns));
  assert_true(leaves_rest(columns, tiles, tile));
  assert_true(extents.value(heads) <= 16 && leaves_rest(heads, head_tiles, head_tile));
}

void systems_of_extents(void**) {
  Extents extents;
  const auto whole = extents.add(256, Extents::Role::whole), x = extents.add(256, Extents::Role::axis),
             one = extents.add(1, Extents::Role::tile), y = extents.add(16, Extents::Role::axis),
             z = extents.add(16, Extents::Role::axis);
  extents.cut(whole, x, one);
  const auto part = extents.add(16, Extents::Role::whole);
  extents.cut(whole, y, part);
  extents.cut(part, z, one);
  const auto free = extents.add(4096, Extents::Role::whole), first = extents.add(40, Extents::Role::whole),
             rest = extents.add(4056, Extents::Role::whole), kept = extents.add(300, Extents::Role::whole);
  extents.sum(free, {first, rest});
  extents.keep(kept);
  extents.solve();
  assert_int_equal(extents.value(one), 1);
  assert_int_equal(extents.value(whole), extents.value(x));
  assert_int_equal(extents.value(whole), extents.value(y) * extents.value(z));
  assert_true(extents.value(y) >= 2 && extents.value(z) >= 2 && extents.value(whole) <= 16);
  assert_int_equal(extents.value(free), extents.value(first) + extents.value(rest));
  assert_true(extents.value(free) <= 16);
  assert_int_equal(extents.value(kept), 300);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(hand_written_files_become_small),  cmocka_unit_test(ragged_edges_stay_ragged),
      cmocka_unit_test(counts_follow_their_extents),      cmocka_unit_test(halves_and_reshapes_follow),
      cmocka_unit_test(what_positions_count_is_the_same), cmocka_unit_test(what_no_choice_fits_stays),
      cmocka_unit_test(tiles_stay_with_what_stays),       cmocka_unit_test(whole_steps_become_few),
      cmocka_unit_test(uneven_parts_of_what_is_even),     cmocka_unit_test(small_tiles_of_what_is_packed),
      cmocka_unit_test(last_tiles_that_are_short),        cmocka_unit_test(systems_of_extents),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
