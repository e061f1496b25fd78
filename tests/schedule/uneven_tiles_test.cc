// Tiles that are no powers of two are tried where they leave less to the SM that has the most to do.
#include "core/schedule/uneven_tiles.h"

#include <algorithm>
#include <cmath>

#include "core/schedule/enumerate.h"
#include "core/schedule/model.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

MuGraph product(int64_t rows, int64_t inner, int64_t columns) {
  const char kText[] = R"(mugraph product
in x: bf16[ROWS, INNER]
in w: bf16[INNER, COLUMNS]
tensor o: bf16[ROWS, COLUMNS]
kernel grid=[2, 2] loop=2 threads=128 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, o, x=1, y=0)
}
out o
)";
  return mugraph_of(with(with(with(kText, "ROWS", std::to_string(rows)), "INNER", std::to_string(inner)),
                         "COLUMNS", std::to_string(columns)));
}

const Target& target() { return **find_target("sm_90a"); }

std::vector<UnevenTile> tiles_of(const MuGraph& mugraph) {
  return uneven_tiles(mugraph, mugraph.kernels[0], target());
}

void they_fill_the_last_wave(void**) {
  // 288 tiles of 128 x 128 are three rounds of 132 SMs, 128 of 192 x 192 are one.
  const std::vector<UnevenTile> tiles = tiles_of(product(1500, 768, 3000));
  assert_true(!tiles.empty() && tiles.size() <= 4);
  assert_true(tiles[0].tile == (TileExtents{192, 192, 0}));
  assert_true(tiles[0].warps == (WarpCounts{12, 1, 1}));
  // Rows of 2048 are 16 tiles of 128, columns of 1536 are 8 of 192.
  assert_true(tiles_of(product(2048, 4096, 1536))[0].tile == (TileExtents{192, 128, 0}));
}

void powers_of_two_that_fill_it_have_no_others(void**) {
  assert_true(tiles_of(product(4096, 4096, 4096)).empty());
  assert_true(tiles_of(product(128 * 11, 512, 128 * 12)).empty());
  assert_true(tiles_of(product(16, 4096, 14336)).empty());
}

// By the model too, and with registers for all.
void the_best_schedule_has_one(void**) {
  const MuGraph mugraph = product(1500, 768, 3000);
  const std::vector<Schedule> schedules = enumerate_schedules(mugraph, target());
  const KernelSchedule& best = schedules[0].kernels[0];
  assert_true(best.tile == (TileExtents{192, 192, 0}));
  assert_true(best.producer && best.wgmma && best.setmaxnreg);
  KernelSchedule square = best;
  square.tile = {128, 128, 0};
  square.warps = {8, 1, 1};
  square.setmaxnreg = false;
  assert_true(*LaunchTimes(target()).of_all(mugraph, schedules[0]) <
              0.9 * *LaunchTimes(target()).of_all(mugraph, {{square}}));
}

void what_has_no_registers_takes_forever(void**) {
  const MuGraph mugraph = product(1500, 768, 3000);
  auto us = [&](int64_t columns, const WarpCounts& warps) {
    KernelSchedule each;
    each.tile = {columns, 192, 0};
    each.tile_k = 64;
    each.warps = warps;
    each.stages = 2;
    each.tma = each.wgmma = each.producer = true;
    return *LaunchTimes(target()).of_all(mugraph, {{each}});
  };
  assert_true(std::isfinite(us(192, {12, 1, 1})));
  assert_false(std::isfinite(us(224, {12, 1, 1})));  // 112 sums of 128 registers
  assert_false(std::isfinite(us(192, {8, 1, 1})));   // 96 rows for each of two warpgroups
}

// Of few rows, in pairs along the inner dimension or not: 48 rows and columns of 6144 are 96 blocks of 64 columns, or of 128 in
// pairs, where there are 132 SMs.
void few_rows_have_columns_for_all_sms(void**) {
  auto skinny = [](int64_t rows, int64_t columns, int cluster) {
    const char kText[] = R"(mugraph product
in x: bf16[ROWS, 6144]
in w: bf16[6144, COLUMNS]
tensor o: bf16[ROWS, COLUMNS]
kernel grid=[2] cluster=PARTS loop=2 threads=128 {
  x0 = load(x, cluster=1, loop=1)
  w0 = load(w, x=1, cluster=0, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  c = cluster_sum(a)
  store(c, o, x=1)
}
out o
)";
    return mugraph_of(
        with(with(with(kText, "ROWS", std::to_string(rows)), "COLUMNS", std::to_string(columns)), "PARTS",
             std::to_string(cluster)));
  };
  const std::vector<UnevenTile> pairs = tiles_of(skinny(48, 6144, 2)), fours = tiles_of(skinny(40, 6144, 4));
  assert_int_equal(pairs.size(), 1);
  assert_true(pairs[0].tile == (TileExtents{96, 0, 0}) && pairs[0].warps == (WarpCounts{4, 1, 1}));
  assert_true(!fours.empty() && fours[0].tile == (TileExtents{192, 0, 0}));
  assert_true(tiles_of(skinny(48, 8192, 2)).empty());  // 128 blocks of 128 columns
  for (const int64_t rows : {16, 100})                 // no rows of one warpgroup
    assert_true(tiles_of(skinny(rows, 6144, 2)).empty());
  KernelSchedule each;
  each.tile = pairs[0].tile;
  each.warps = pairs[0].warps;
  each.tile_k = 64;
  each.stages = 6;
  each.tma = each.wgmma = each.producer = true;
  const MuGraph mugraph = skinny(48, 6144, 2);
  assert_true(std::isfinite(*LaunchTimes(target()).of_all(mugraph, {{each}})));
}

// Queries in tiles of three warpgroups, where few of their rows are beyond the last one.
void queries_are_shared_by_three_warpgroups(void**) {
  auto attention = [](const std::string& rows) {
    const char kText[] = R"(mugraph attention
in q: bf16[32, ROWS, 64]
in k: bf16[32, 64, 2048]
in v: bf16[32, 2048, 64]
tensor o: bf16[32, ROWS, 64]
kernel grid=[2, 32] loop=16 threads=128 {
  q0 = load(q, x=1, y=0)
  k0 = load(k, y=0, loop=2)
  s = matmul(q0, k0)
  t = max(s, axis=[2], keepdims=true)
  m = accumulate_max(t)
  d = sub(s, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  v0 = load(v, y=0, loop=1)
  c = cast(e, dtype=bf16)
  p = matmul(c, v0)
  a = accumulate_rescaled(p, m)
  z = div(a, l)
  store(z, o, x=1, y=0)
}
out o
)";
    return mugraph_of(with(kText, "ROWS", rows));
  };
  for (const char* rows : {"1536", "2048", "1500"}) {
    const auto tiles = tiles_of(attention(rows));
    assert_int_equal(tiles.size(), 1);
    assert_true(tiles[0].tile == (TileExtents{192, 0, 0}));
    assert_true(tiles[0].warps == (WarpCounts{12, 1, 1}));
  }
  for (const char* rows : {"256", "1024", "100"}) assert_true(tiles_of(attention(rows)).empty());
  // Tensor cores read the queries in shared memory, and blocks may stay: registers are not enough otherwise.
  const std::vector<Schedule> schedules = enumerate_schedules(attention("1536"), target());
  const auto best = std::find_if(schedules.begin(), schedules.end(), [](const Schedule& each) {
    return each.kernels[0].warps == WarpCounts{12, 1, 1};
  });
  assert_true(best != schedules.end());
  const KernelSchedule& three = best->kernels[0];
  assert_true(three.shared_a && three.overlap && three.setmaxnreg && three.persistent > 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(they_fill_the_last_wave),
      cmocka_unit_test(powers_of_two_that_fill_it_have_no_others),
      cmocka_unit_test(the_best_schedule_has_one),
      cmocka_unit_test(what_has_no_registers_takes_forever),
      cmocka_unit_test(few_rows_have_columns_for_all_sms),
      cmocka_unit_test(queries_are_shared_by_three_warpgroups),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
