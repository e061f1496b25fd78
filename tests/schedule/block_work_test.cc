// What the work of blocks is counted as, against what the emitted programs were seen to do.
#include "core/schedule/block_work.h"

#include "core/mugraph/text.h"
#include "core/schedule/tile_work.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

BlockWork work_of(const char* mugraph, const char* schedule, size_t kernel = 0) {
  auto parsed = parse_mugraph(mugraph);
  assert_ok(parsed);
  auto how = parse_schedule(schedule);
  assert_ok(how);
  auto applied = apply_schedule(*parsed, *how);
  assert_ok(applied);
  return block_work(*applied, applied->kernels[kernel], how->kernels[kernel], **find_target("sm_90a"));
}

void a_product_is_cut_into_parts(void**) {
  auto parts = [](int64_t rows, int64_t inner, std::array<int, 3> warps) {
    const ProductParts got = product_parts(rows, inner, 16, warps);
    return std::array<int64_t, 3>{got.m, got.n, got.k};
  };
  assert_true((parts(64, 64, {2, 2, 2}) == std::array<int64_t, 3>{2, 2, 2}));
  assert_true((parts(16, 64, {4, 1, 2}) == std::array<int64_t, 3>{1, 4, 2}));  // no more rows
  assert_true((parts(32, 16, {1, 2, 4}) == std::array<int64_t, 3>{1, 8, 1}));  // nor more of the inner one
}

// How threads share products without tensor cores: sums of a thread, loads of a group of steps and what these
// fill.
void products_by_fma_are_shared_by_threads(void**) {
  struct Row {
    int64_t rows, columns, inner;
    bool a_by_inner, b_by_inner;
    std::array<int, 3> warps;
    int m_lanes, n_lanes, sums, loads, registers;
  };
  for (const Row& row : {Row{128, 128, 32, true, false, {2, 2, 1}, 3, 2, 128, 8 + 4 * 4, 8 * 4 + 16},
                         Row{128, 128, 32, false, false, {2, 2, 1}, 2, 3, 128, 2 + 4, 16 + 8},
                         Row{128, 128, 32, true, true, {2, 2, 1}, 2, 3, 128, 16 + 8, 16 * 4 + 8 * 4},
                         Row{128, 64, 64, true, false, {2, 2, 2}, 3, 2, 64, 8 + 4 * 2, 8 * 4 + 8},
                         // A row: of eight columns one lane each, and one of them is repeated.
                         Row{1, 16, 8, true, false, {1, 1, 1}, 0, 4, 1, 1 + 4, 4 + 1}}) {
    const FmaTile tile =
        fma_tile(row.rows, row.columns, row.inner, {row.a_by_inner, 2}, {row.b_by_inner, 2}, row.warps);
    assert_int_equal(tile.m_lanes, row.m_lanes);
    assert_int_equal(tile.n_lanes, row.n_lanes);
    assert_int_equal(tile.sums(), row.sums);
    assert_int_equal(tile.loads(), row.loads);
    assert_int_equal(tile.operand_registers(), row.registers);
    // Nothing is lost: registers, lanes and warps count all of it.
    assert_int_equal(1 << (tile.m_registers + tile.m_lanes + tile.m_warps), row.rows);
    assert_int_equal(1 << (tile.n_registers + tile.n_lanes + tile.n_warps), row.columns);
    assert_int_equal(1 << (tile.group + tile.groups + tile.k_warps), row.inner);
  }
}

void reductions_combine_lanes_and_warps(void**) {
  // Eight warps on 64 x 16: four columns of a thread, four lanes a row, and 8 rows a warp.
  ReducedParts parts = reduced_parts({64, 16}, {0}, 4, 8);
  assert_int_equal(parts.lane_bits, 3);
  assert_true(parts.across_warps);
  assert_float_equal(parts.values, 4, 1e-9);
  parts = reduced_parts({64, 16}, {1}, 4, 8);
  assert_int_equal(parts.lane_bits, 2);
  assert_false(parts.across_warps);
  assert_float_equal(parts.values, 1, 1e-9);
  // One row a block: whatever is left of it.
  parts = reduced_parts({1, 4096}, {1}, 2, 8);
  assert_int_equal(parts.lane_bits, 5);
  assert_true(parts.across_warps);
  // Four of eight warps have a row each, the others half of one.
  parts = reduced_parts({4, 1024}, {1}, 4, 8, 4);
  assert_int_equal(parts.lane_bits, 5);
  assert_true(parts.across_warps);
  assert_float_equal(parts.values, 1, 1e-9);
  assert_false(reduced_parts({8, 1024}, {1}, 4, 8, 8).across_warps);
  // Sums of columns: of all that a warp has of its row, and for all warps that have others.
  parts = reduced_parts({4, 1024}, {0}, 4, 8, 4);
  assert_float_equal(parts.values, 16, 1e-9);
  assert_true(parts.across_warps);
  // A product by two warps along its rows and two along its columns.
  parts = reduced_product_parts({64, 64}, {1}, {2, 2, 1});
  assert_int_equal(parts.lane_bits, 2);
  assert_true(parts.across_warps);
  assert_float_equal(parts.values, 4, 1e-9);
  parts = reduced_product_parts({1, 128, 64}, {2}, {8, 1, 1});
  assert_false(parts.across_warps);
  assert_float_equal(parts.values, 2, 1e-9);
}

constexpr const char* kGated = R"(
mugraph gated
in x: f16[32, 1024]
in w: f16[1024, 512]
tensor z: f16[32, 512]
kernel grid=[4] loop=8 threads=128 {
  x0 = load(x, loop=1)
  g = gelu(x0)
  w0 = load(w, x=1, loop=0)
  xw = matmul(g, w0)
  a = accumulate_sum(xw)
  store(a, z, x=1)
}
out z
)";

void left_operands_are_made_by_every_warp_of_the_columns(void**) {
  const BlockWork one = work_of(kGated, "kernel warps=[1, 1, 8] stages=3\n");
  const BlockWork four = work_of(kGated, "kernel warps=[1, 4, 2] stages=3\n");
  const double elements = 32 * 128;
  assert_float_equal(four.loop.special, 4 * one.loop.special, 1e-9);
  assert_true(four.loop.slots > 3.9 * one.loop.slots);
  // Each of them reads the tile.
  assert_true(four.loop.shared_bytes > one.loop.shared_bytes + 2.9 * elements * 2);
  // So do warpgroups, for columns of their own.
  const std::string rows = with(with(kGated, "x: f16[32", "x: f16[64"), "z: f16[32", "z: f16[64");
  const BlockWork along_k =
                      work_of(rows.c_str(), "kernel warps=[4, 1, 2] stages=3 tma=1 wgmma=1 producer=1\n"),
                  columns =
                      work_of(rows.c_str(), "kernel warps=[4, 2, 1] stages=3 tma=1 wgmma=1 producer=1\n");
  assert_float_equal(columns.loop.special, 2 * along_k.loop.special, 1e-9);
  assert_float_equal(columns.loop.slots, 2 * along_k.loop.slots, 1e-9);
  assert_float_equal(columns.loop.wgmma, along_k.loop.wgmma, 1e-9);
}

constexpr const char* kTwoProducts = R"(
mugraph mlp
in x: f16[32, 64]
in v: f16[64, 512]
in w: f16[512, 256]
tensor z: f16[32, 256]
kernel grid=[1] loop=8 threads=128 {
  x0 = load(x)
  v0 = load(v, loop=1)
  xv = matmul(x0, v0)
  r = relu(xv)
  w0 = load(w, loop=0)
  rw = matmul(r, w0)
  a = accumulate_sum(rw)
  store(a, z)
}
out z
)";

// Warps along the inner dimension have parts of a result; what the loop goes on with is put together there.
void parts_of_a_product_meet_where_they_are_used(void**) {
  const BlockWork whole = work_of(kTwoProducts, "kernel warps=[1, 4, 1] stages=3\n");
  const BlockWork parts = work_of(kTwoProducts, "kernel warps=[1, 1, 4] stages=3\n");
  const double exchanged = 32 * 64 * 4 * 4;  // the four parts, written
  assert_true(parts.loop.shared_bytes > exchanged);
  assert_true(parts.loop.chain > whole.loop.chain + 100);
}

// A warp with few sums waits for each before it adds to it; one with many does not, nor do warps that part the inner dimension.
void few_sums_wait_for_each_other(void**) {
  const char* kFew = R"(
mugraph product
in x: f16[16, 1024]
in w: f16[1024, 256]
tensor z: f16[16, 256]
kernel grid=[4] loop=8 threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z, x=1)
}
out z
)";
  const double few = work_of(kFew, "kernel warps=[1, 4, 1] stages=3\n").loop.chain,
               more = work_of(kFew, "kernel tile=[256, 0, 0] warps=[1, 4, 1] stages=3\n").loop.chain,
               apart = work_of(kFew, "kernel warps=[1, 1, 4] stages=3\n").loop.chain;
  assert_true(few > more + 100);
  assert_true(few > apart + 100);
}

constexpr const char* kProduct = R"(
mugraph product
in x: f16[256, 1024]
in w: f16[1024, 256]
tensor z: f16[256, 256]
kernel grid=[2, 2] loop=16 threads=128 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z, x=1, y=0)
}
out z
)";

// What ptxas took for products of these tiles by wgmma: 26 and one for each sum of a thread.
void warpgroups_keep_their_sums_in_registers(void**) {
  struct Row {
    const char *tile, *warps;
    double registers;
  };
  for (const Row& row :
       {Row{"128, 256", "8, 1, 1", 154}, Row{"128, 128", "4, 1, 1", 154}, Row{"128, 128", "8, 1, 1", 90},
        Row{"128, 64", "4, 2, 1", 58}, Row{"64, 64", "4, 1, 1", 58},
        // Rows of panels have 64 columns: two of four warpgroups repeat the others' work.
        Row{"128, 128", "4, 4, 1", 90}}) {
    const BlockWork work = work_of(kProduct, ("kernel tile=[" + std::string(row.tile) + ", 0] warps=[" +
                                              row.warps + "] stages=3 tma=1 wgmma=1 producer=1\n")
                                                 .c_str());
    assert_float_equal(work.registers, row.registers, 0.1 * row.registers);
  }
  // 128 x 256 by one warpgroup does not fit.
  assert_true(
      work_of(kProduct, "kernel tile=[256, 0, 0] warps=[4, 1, 1] stages=3 tma=1 wgmma=1\n").registers > 255);
}

void warpgroups_that_repeat_take_tensor_cores(void**) {
  const BlockWork two = work_of(kProduct, "kernel warps=[4, 2, 1] stages=3 tma=1 wgmma=1\n");
  const BlockWork four = work_of(kProduct, "kernel warps=[4, 4, 1] stages=3 tma=1 wgmma=1\n");
  assert_float_equal(four.loop.wgmma, 2 * two.loop.wgmma, 1e-9);
}

// A copy by TMA brings 128 bytes of each row of a tile: many rows, or one.
void copies_bring_panels_of_rows(void**) {
  const BlockWork gated = work_of(kGated, "kernel warps=[1, 4, 1] stages=3 tma=1\n");
  assert_float_equal(gated.loop.copies, 2 + 2, 1e-9);
  assert_float_equal(gated.loop.lines, 2 * 32 + 2 * 128, 1e-9);
  const BlockWork row = work_of(R"(
mugraph row
in x: bf16[64, 4096]
tensor z: bf16[64, 1]
kernel grid=[4] loop=16 threads=128 {
  x0 = load(x, x=0, loop=0)
  s = sum(x0, axis=[1], keepdims=true)
  store(s, z, x=0, loop=0)
}
out z
)",
                                "kernel stages=3 tma=1\n");
  assert_float_equal(row.loop.copies, 64, 1e-9);
  assert_float_equal(row.loop.lines, 64, 1e-9);
}

// Rows of 128 bytes, 2000 bytes apart, begin where a multiple of 16 is: in two lines of the cache but for one
// in eight, and in four sectors and a half.
void rows_of_ragged_tensors_begin_anywhere(void**) {
  const char* const product = R"(
mugraph product
in x: bf16[128, EXTENT]
in w: bf16[EXTENT, 64]
tensor z: bf16[128, 64]
kernel grid=[1] loop=15 threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, loop=0)
  m = matmul(x0, w0)
  a = accumulate_sum(m)
  store(a, z)
}
out z
)";
  auto of = [&](const char* extent) {
    const std::string text = with(product, "EXTENT", extent);
    return work_of(text.c_str(), "kernel tile_k=64 warps=[4, 1, 1] stages=3 tma=1\n");
  };
  const BlockWork even = of("1024"), ragged = of("1000");
  assert_float_equal(even.loop.lines, 128 + 64, 1e-9);
  assert_float_equal(ragged.loop.lines, 128 * 1.875 + 64, 1e-9);
  assert_float_equal(ragged.loop_l2 - even.loop_l2, 128 * 16, 1e-9);
}

// Rows of a transposed view are those of its source, whatever its own last extent is.
void views_of_ragged_tensors_come_by_tma(void**) {
  const std::string product = R"(mugraph product
in x: f16[64, 128]
in k: f16[EXTENT, 128]
tensor kt: f16[128, EXTENT]
tensor z: f16[64, EXTENT]
kt = transpose(k, perm=[1, 0])
kernel grid=[13] loop=2 {
  x0 = load(x, loop=1)
  k0 = load(kt, x=1, loop=0)
  m = matmul(x0, k0)
  a = accumulate_sum(m)
  store(a, z, x=1)
}
out z
)";
  auto of = [&](const char* extent) {
    const std::string text = with(product, "EXTENT", extent);
    return work_of(text.c_str(),
                   "kernel\nkernel tile=[64, 0, 0] tile_k=64 warps=[4, 1, 1] stages=3 tma=1 wgmma=1\n", 1);
  };
  const BlockWork even = of("832"), ragged = of("777");
  assert_float_equal(even.loop.copies, 2, 1e-9);
  assert_float_equal(ragged.loop.copies, 2, 1e-9);
  assert_float_equal(ragged.loop.round_trips, 0, 1e-9);
  assert_float_equal(ragged.loop.lines, even.loop.lines, 1e-9);
}

// Of rows of 128 bytes one or more next to each other, in as many places as a tile has heads.
void whole_rows_that_lie_apart_cost_time(void**) {
  constexpr const char* kNorm = R"(
mugraph norm
in x: f16[32, 4096, 64]
tensor z: f16[32, 4096, 64]
kernel grid=[128, 4] threads=256 {
  x0 = load(x, x=1, y=0)
  n = rms_norm(x0, axis=[2], eps=1e-05)
  store(n, z, x=1, y=0)
}
out z
)";
  const double bytes = 2.0 * 32 * 4096 * 64 * 2;  // read, and written
  auto moved = [&](const char* tile) {
    return work_of(kNorm, ("kernel tile=" + std::string(tile) + "\n").c_str()).unique_bytes / bytes;
  };
  assert_float_equal(moved("[32, 1, 0]"), 1, 1e-9);  // all of a tile lies together
  assert_float_equal(moved("[4096, 8, 0]"), 1, 1e-9);
  assert_float_equal(moved("[16, 2, 0]"), 1 + 24.0 / 2048, 1e-9);
  assert_float_equal(moved("[2, 16, 0]"), 1 + 24.0 / 256, 1e-9);
}

// Queries are normed before the loop begins: what that keeps is gone when scores need their registers (154 as ptxas says).
void what_ends_before_the_loop_needs_none_of_its_registers(void**) {
  constexpr const char* kAttention = R"(
mugraph attention
in q: f16[32, 256, 64]
in k: f16[32, 64, 4096]
in v: f16[32, 4096, 64]
tensor z: f16[32, 256, 64]
kernel grid=[4, 32] loop=32 threads=128 {
  q0 = load(q, x=1, y=0)
  k0 = load(k, y=0, loop=2)
  n = rms_norm(q0, axis=[2], eps=1e-05)
  c = cast(n, dtype=f16)
  s = matmul(c, k0)
  t = max(s, axis=[2], keepdims=true)
  m = accumulate_max(t)
  d = sub(s, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  v0 = load(v, y=0, loop=1)
  h = cast(e, dtype=f16)
  p = matmul(h, v0)
  a = accumulate_rescaled(p, m)
  o = div(a, l)
  store(o, z, x=1, y=0)
}
out z
)";
  const char* schedule = "kernel warps=[4, 1, 1] stages=3 tma=1 wgmma=1 shared_a=1 producer=1 overlap=1\n";
  const double normed = work_of(kAttention, schedule).registers,
               as_they_are =
                   work_of(with(kAttention, "rms_norm(q0, axis=[2], eps=1e-05)", "mul(q0, 0.125)").c_str(),
                           schedule)
                       .registers;
  assert_float_equal(normed, as_they_are, 1e-9);
  assert_float_equal(normed, 154, 15);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_product_is_cut_into_parts),
                              cmocka_unit_test(products_by_fma_are_shared_by_threads),
                              cmocka_unit_test(reductions_combine_lanes_and_warps),
                              cmocka_unit_test(left_operands_are_made_by_every_warp_of_the_columns),
                              cmocka_unit_test(parts_of_a_product_meet_where_they_are_used),
                              cmocka_unit_test(few_sums_wait_for_each_other),
                              cmocka_unit_test(warpgroups_keep_their_sums_in_registers),
                              cmocka_unit_test(warpgroups_that_repeat_take_tensor_cores),
                              cmocka_unit_test(copies_bring_panels_of_rows),
                              cmocka_unit_test(rows_of_ragged_tensors_begin_anywhere),
                              cmocka_unit_test(views_of_ragged_tensors_come_by_tma),
                              cmocka_unit_test(whole_rows_that_lie_apart_cost_time),
                              cmocka_unit_test(what_ends_before_the_loop_needs_none_of_its_registers)};
  return cmocka_run_group_tests_name("schedule-block_work", tests, nullptr, nullptr);
}
