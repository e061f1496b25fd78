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

void ragged_tiles_are_rounded_up(void**) {
  assert_true(cut(11, {{4, 3}}).first == 9 && cut(11, {{4, 3}}).last == 11 && cut(11, {{4, 3}}).tile == 3);
  assert_int_equal(cut(5, {{4, 3}}).size(), 0);
  // Cut by 2, then by 3: tiles of 4, then of 2.
  const Interval inner = cut(8, {{2, 1}, {3, 2}});
  assert_true(inner.tile == 2 && inner.first == 8 && inner.size() == 0);
  const Interval middle = cut(8, {{2, 0}, {3, 1}});
  assert_true(middle.first == 2 && middle.last == 4);
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
      cmocka_unit_test(tiles_and_stages_follow_from_the_maps),
      cmocka_unit_test(ragged_tiles_are_rounded_up),
      cmocka_unit_test(refuses_what_does_not_hold),
      cmocka_unit_test(library_operators_are_checked),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
