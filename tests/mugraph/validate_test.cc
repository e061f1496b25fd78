// What validate() refuses, and where values live.
#include "core/mugraph/text.h"
#include "tests/support/test.h"

using namespace quern;

namespace {

Result<MuGraph> kernel(const std::string& options, const std::string& block) {
  return parse_mugraph(
      "mugraph g\nin x: f16[4, 8]\nin w: f16[8, 6]\ntensor z: f16[4, 6]\ntensor s: f16[4, 1]\nkernel " +
      options + " {\n" + block + "}\nout z\n");
}

void tiles_and_stages_follow_from_the_maps(void**) {
  const Result<MuGraph> mugraph = kernel(
      "grid=[2] loop=4",
      "a = load(x, loop=1)\nb = load(w, x=1, loop=0)\nc = load(x)\np = matmul(a, b)\nq = "
      "accumulate_sum(p)\nt = max(p, axis=1, keepdims=true)\nm = accumulate_max(t)\nd = sub(p, m)\ne = "
      "sum(d, axis=1, keepdims=true)\nf = accumulate_rescaled(e, m)\ny = div(q, f)\nstore(y, z, "
      "x=1)\n");
  assert_ok(mugraph);
  const MuKernel& k = mugraph->kernels[0];
  const std::vector<Ints> shapes = {{4, 2}, {2, 3}, {4, 8}, {4, 3}, {4, 3}, {4, 1},
                                    {4, 1}, {4, 3}, {4, 1}, {4, 1}, {4, 3}, {4, 3}};
  const std::vector<Stage> stages = {Stage::loop,  Stage::loop,  Stage::before, Stage::loop,
                                     Stage::after, Stage::loop,  Stage::after,  Stage::loop,
                                     Stage::loop,  Stage::after, Stage::after,  Stage::after};
  for (size_t i = 0; i < shapes.size(); ++i) assert_true(k.ops[i].type.shape == shapes[i]);
  assert_true(block_stages(k) == stages);
}

// A load whose first dimension axis y cuts, the loop too.
BlockOp looped_load() { return BlockOp(BlockOp::Load{{.map = {-1, 0, -1, -1}, .loop_dim = 0}}); }

void ragged_tiles_are_rounded_up(void**) {
  MuKernel kernel;
  auto at = [&](int64_t extent, int64_t y, int64_t iteration) {
    return tile_interval(kernel, looped_load(), 0, extent, {0, y, 0, 0, iteration});
  };
  kernel.grid[1] = 4;
  const Interval last = at(11, 3, 0);
  assert_true(last.first == 9 && last.last == 11 && last.tile == 3);
  assert_int_equal(at(5, 3, 0).size(), 0);
  // Cut by 2, then by 3: tiles of 4, then of 2.
  kernel.grid[1] = 2;
  kernel.trip_count = 3;
  const Interval inner = at(8, 1, 2);
  assert_true(inner.tile == 2 && inner.first == 8 && inner.size() == 0);
  const Interval middle = at(8, 0, 1);
  assert_true(middle.first == 2 && middle.last == 4);
}

void tiles_may_be_larger_than_even_parts(void**) {
  MuKernel kernel;
  kernel.grid[1] = 2;
  kernel.trip_count = 5;
  kernel.tiles = {0, 576, 0, 0, 128};
  auto at = [&](int64_t extent, int64_t y, int64_t iteration) {
    return tile_interval(kernel, looped_load(), 0, extent, {0, y, 0, 0, iteration});
  };
  // 1025: parts of 576 and 449, iterations of 128 but for the last of each.
  const Interval first = at(1025, 0, 4), last = at(1025, 1, 3), none = at(1025, 1, 4);
  assert_true(first.first == 512 && first.last == 576 && first.tile == 128);
  assert_true(last.first == 960 && last.last == 1025);
  assert_int_equal(none.size(), 0);
  // Of extents that these tiles do not cut into so many parts, parts are even.
  assert_true(at(20, 1, 0).first == 10 && at(20, 1, 0).tile == 2);
}

void refuses_what_does_not_hold(void**) {
  const std::string good = "a = load(x)\nb = load(w, x=1)\np = matmul(a, b)\n";
  struct Case {
    const char *options, *block, *message;
  };
  const Case cases[] = {
      {"grid=[2]", "a = load(x)\nb = load(w)\np = matmul(a, b)\nstore(p, z)\n",
       "kernel 0, operator 3: several blocks store to the same place"},
      {"grid=[2]", "a = load(x)\nb = load(w, x=1)\np = matmul(a, b)\nstore(p, z, x=0)\n",
       "dimension 0 of the tile has extent 4, the place it is stored to 2"},
      {"loop=4", "a = load(x, loop=1)\nb = load(w, loop=0)\np = matmul(a, b)\nstore(p, z)\n",
       "a store in the loop"},
      {"loop=4",
       "a = load(x, loop=1)\nb = load(w, loop=0)\np = matmul(a, b)\nq = accumulate_sum(p)\nr = "
       "add(p, q)\nt = accumulate_sum(r)\nstore(t, z)\n",
       "complete only after it"},
      {"loop=2",
       "a = load(x)\nb = load(w)\np = matmul(a, b)\nq = slice(p, start=[0, 0], stop=[2, 6], step=[1, "
       "1])\nstore(q, z, loop=0)\n",
       "a value that is not in the loop"},
      {"loop=2",
       "a = load(x, loop=0)\nb = load(w)\np = matmul(a, b)\nq = accumulate_concat(p, axis=0)\nstore(q, z, "
       "loop=0)\n",
       "the place it is stored to 2"},
      {"cluster=2 loop=2", "a = load(x, loop=0)\nb = load(w)\np = matmul(a, b)\nstore(p, z, loop=0)\n",
       "several blocks of a cluster"},
      {"loop=4", "a = load(x, loop=1)\nb = load(w)\np = matmul(a, b)\nstore(p, z)\n",
       "the inner extents differ"},
      {"loop=2", "a = load(x, loop=5)\n", "the loop cuts a dimension that does not exist"},
      {"grid=[2]", "a = load(x, x=2)\n", "a map names dimension 2 of a tensor of rank 2"},
      {"grid=[0]", "a = load(x)\n", "a grid extent is below 1"},
      {"loop=4", "a = load(x, loop=1)\nb = accumulate_sum(a)\nc = accumulate_sum(b)\n",
       "over the iterations of a value"},
      {"loop=4", "a = load(x, loop=1)\nr = accumulate_rescaled(a, a)\n", "needs a max accumulator"},
      {"loop=4", "a = load(x, loop=1)\nr = accumulate_rescaled(a)\n", "expected 2 operands"},
      {"loop=4", "a = load(x, loop=1)\nr = accumulate_sum(a, a)\n", "expected 1 operands"},
      {"loop=4", "a = load(x, loop=1)\nr = accumulate_concat(a, axis=3)\n", "concat along a dimension"},
      {"cluster=2",
       "a = load(x, cluster=1)\nb = load(w, cluster=0)\np = matmul(a, b)\nc = cluster_rescaled(p, "
       "p)\n",
       "needs a max accumulator"},
      {"cluster=2 loop=2", "a = load(x, cluster=1, loop=1)\nc = cluster_sum(a)\n", "cluster in the loop"},
      {"grid=[1]", "a = load(z)\n", "\"z\" is read before it is written"},
      {"grid=[1]", "a = load(x)\nb = load(w)\np = matmul(a, b)\nstore(p, z)\nstore(p, z)\n", "written twice"},
      {"grid=[1]", "a = load(x)\nstore(a, x)\n", "\"x\" is written twice"},
      {"grid=[1]", "a = extent(x[4])\n", "names an extent that does not exist"},
      {"grid=[1]", "a = load(x)\n", "an output is never written"},
      {"grid=[1]", "a = load(x)\nr = sum(a, axis=1)\nstore(r, s)\n", "differ in rank"},
      {"grid=[70000, 70000, 70000]", "a = load(x)\n", "grid"},
      {"cluster=64", "a = load(x)\n", "cluster of more than"},
      {"threads=4096", "a = load(x)\n", "threads"},
  };
  for (const Case& c : cases) assert_error(kernel(c.options, c.block), ErrorCode::INVALID_GRAPH, c.message);
  assert_ok(kernel("grid=[2]", good + "store(p, z, x=1)\n"));
  assert_ok(kernel("grid=[2] loop=2",
                   "a = load(x, loop=0)\nb = load(w, x=1)\np = matmul(a, b)\nstore(p, z, x=1, loop=0)\n"));
}

void library_operators_are_checked(void**) {
  const std::string head = "mugraph g\nin x: f16[4, 8]\nin w: f16[8, 6]\ntensor z: f16[4, 5]\n";
  assert_error(parse_mugraph(head + "z = matmul(x, w)\nout z\n"), ErrorCode::INVALID_GRAPH, "another shape");
  assert_error(parse_mugraph(head + "z = matmul(z, w)\nout z\n"), ErrorCode::INVALID_GRAPH,
               "kernel 0: \"z\" is read before it is written");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(tiles_and_stages_follow_from_the_maps), cmocka_unit_test(ragged_tiles_are_rounded_up),
      cmocka_unit_test(tiles_may_be_larger_than_even_parts),   cmocka_unit_test(refuses_what_does_not_hold),
      cmocka_unit_test(library_operators_are_checked),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
