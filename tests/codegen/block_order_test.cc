// In which order the blocks of products begin, and that they are right in it.
#include "core/codegen/block_order.h"

#include "core/mugraph/text.h"
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

struct Product {
  int64_t rows, columns, inner;
};

// Of so many blocks along columns and along rows.
int64_t together(const Product& product, int across, int down, int64_t persistent = 0) {
  const auto size = [](int64_t number) { return std::to_string(number); };
  const auto mugraph = parse_mugraph(
      "mugraph product\nin x: f16[" + size(product.rows) + ", " + size(product.inner) + "]\nin w: f16[" +
      size(product.inner) + ", " + size(product.columns) + "]\ntensor y: f16[" + size(product.rows) + ", " +
      size(product.columns) + "]\nkernel grid=[" + size(across) + ", " + size(down) +
      "] loop=64 threads=256 {\n  a = load(x, y=0, loop=1)\n  b = load(w, x=1, loop=0)\n  c = matmul(a, b)\n"
      "  d = accumulate_sum(c)\n  e = cast(d, dtype=f16)\n  store(e, y, x=1, y=0)\n}\nout y\n");
  assert_ok(mugraph);
  KernelSchedule schedule;
  schedule.persistent = persistent;
  return block_order(*mugraph, mugraph->kernels[0], schedule, **find_target("sm_90a")).together;
}

// Which ask at the same time then, as all of them run.
void blocks_that_share_the_larger_tensor_are_neighbours(void**) {
  assert_int_equal(together({128, 8192, 8192}, 64, 2), 2);
  assert_int_equal(together({256, 8192, 4096}, 32, 4), 4);
  assert_int_equal(together({8192, 128, 8192}, 2, 64), 1);   // along x they are
  assert_int_equal(together({1024, 1024, 8192}, 16, 8), 1);  // neither is larger
  assert_int_equal(together({128, 1024, 8192}, 16, 2), 1);   // the L2 cache holds it
  assert_int_equal(together({128, 8192, 8192}, 64, 1), 1);
}

// About as many rows of tiles as columns, of those that run at once.
void blocks_that_run_later_make_squares(void**) {
  const int64_t all = together({8192, 8192, 8192}, 64, 64), fewer = together({8192, 8192, 8192}, 64, 64, 32);
  assert_in_range(all, 8, 16);
  assert_in_range(fewer, 4, 8);
  assert_int_equal(together({256, 16384, 4096}, 128, 2), 2);
}

// In the emulator, as if there were no L2 cache: blocks for all tiles, and such that stay.
void neighbours_that_run_at_once_are_right(void**) {
  const char kTiles[] = R"(mugraph parts
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID, 2] loop=TURNS threads=128 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z, x=1, y=0)
}
out z
)";
  KernelSchedule by_warps, by_warpgroups, staying;
  by_warps.warps = {2, 2, 1};
  by_warpgroups.warps = {4, 1, 1};
  by_warpgroups.stages = 2;
  by_warpgroups.tma = by_warpgroups.wgmma = by_warpgroups.producer = true;
  staying = by_warpgroups;
  staying.persistent = 6;
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& each : {by_warps, by_warpgroups, staying}) {
    cases.push_back(sized_case("parts", kProductGraph, kTiles, {"bf16", "128", "64", "192", "3", "2"}, each));
    cases.back().l2_mib = 0;
    assert_contains(emitted(cases.back()).source,
                    each.persistent > 0 ? "const int first = tile % 2" : "int(blockIdx.x) % 2");
  }
  all_are_right_on_hostile_inputs(std::move(cases));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(blocks_that_share_the_larger_tensor_are_neighbours),
                              cmocka_unit_test(blocks_that_run_later_make_squares),
                              cmocka_unit_test(neighbours_that_run_at_once_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
