// What the baseline emitter says that its launches do.
#include "core/codegen/baseline.h"
#include "core/graph/text.h"
#include "core/schedule/block_costs.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

std::vector<LaunchWork> work_of(const std::string& text, const char* target = "sm_90a") {
  const auto graph = parse_graph("graph g\n" + text);
  assert_ok(graph);
  auto emitted = emit_baseline(*graph, **find_target(target));
  assert_ok(emitted);
  assert_int_equal(emitted->work.size(), emitted->plan.launches.size());
  return std::move(emitted->work);
}

double blocks_of(const LaunchWork& work) { return static_cast<double>(work.block.blocks); }

double bytes_of(const LaunchWork& work, LaunchArg::Kind kind, bool written) {
  double bytes = 0;
  for (const BufferAccess& access : work.accesses)
    if (access.buffer.kind == kind && access.written == written) bytes += access.bytes;
  return bytes;
}

void points_move_every_byte_once(void**) {
  const auto work = work_of("in x: f16[1024, 512]\nin y: f16[512]\nz = add(x, y)\nout z\n");
  assert_int_equal(work.size(), 1);
  const double bytes = 1024 * 512 * 2;
  assert_float_equal(bytes_of(work[0], LaunchArg::Kind::input, false), bytes + 512 * 2, 0.5);
  assert_float_equal(bytes_of(work[0], LaunchArg::Kind::output, true), bytes, 0.5);
  // Out of the cache the bias comes for every row.
  assert_float_equal(work[0].block.once_l2 * blocks_of(work[0]), 3 * bytes, 0.5);
}

// A column of 2-byte elements takes a sector of 32 bytes for each of them.
void transposed_reads_take_whole_sectors(void**) {
  const auto direct = work_of("in x: f16[1024, 512]\nz = exp(x)\nout z\n");
  const auto transposed = work_of("in x: f16[512, 1024]\nt = transpose(x, perm=[1, 0])\nz = exp(t)\nout z\n");
  assert_true(transposed[0].block.once_l2 * blocks_of(transposed[0]) >
              4 * direct[0].block.once_l2 * blocks_of(direct[0]));
  assert_float_equal(bytes_of(transposed[0], LaunchArg::Kind::input, false), 1024 * 512 * 2, 0.5);
}

// Rows that fit the chip are read once and kept in shared memory; others are read again for every level.
void rows_are_read_once_where_they_fit(void**) {
  const auto levels = [](int columns, const char* target) {
    const std::string x = "in x: f32[512, " + std::to_string(columns) + "]\n";
    const auto one = work_of(x + "m = sum(x, axis=1)\nout m\n", target);
    const auto two =
        work_of(x + "m = max(x, axis=1, keepdims=true)\nd = sub(x, m)\ns = sum(d, axis=1)\nout s\n", target);
    assert_int_equal(two.size(), 1);
    assert_float_equal(bytes_of(two[0], LaunchArg::Kind::input, false), 512.0 * columns * 4, 0.5);
    const double blocks = blocks_of(two[0]) / blocks_of(one[0]);
    return std::pair(two[0].block.once_l2 * blocks / one[0].block.once_l2, two[0].block.exchange_bytes);
  };
  const auto [kept, shared] = levels(2048, "sm_90a");
  assert_true(kept < 1.1);
  assert_float_equal(shared, 2048 * 4, 0.5);
  const auto [by_cluster, part] = levels(65536, "sm_90a");
  assert_true(by_cluster < 1.1);
  const double for_sums = part - 65536 / 4 * 4;  // what blocks leave for each other
  assert_true(for_sums > 0 && for_sums < 256);
  const auto [again, none] = levels(65536, "sm_80");
  assert_true(again > 1.9);
  assert_float_equal(none, 0, 0.5);
}

void products_count_their_tiles(void**) {
  const auto work = work_of("in a: f16[512, 256]\nin b: f16[256, 512]\nc = matmul(a, b)\nout c\n");
  const double mma =
      work[0].block.loop.mma * static_cast<double>(work[0].block.trip_count) * blocks_of(work[0]);
  assert_float_equal(mma, 512.0 * 512 * 256 / (16 * 8 * 16), 0.5);
  assert_true(work[0].schedule.stages > 1 && work[0].block.loop.round_trips == 0);
  const auto odd = work_of("in a: f16[512, 257]\nin b: f16[257, 511]\nc = matmul(a, b)\nout c\n");
  assert_true(odd[0].block.loop.round_trips > 0);  // rows begin anywhere: no copies of 16 bytes
  const auto wide = work_of("in a: f32[512, 256]\nin b: f32[256, 512]\nc = matmul(a, b)\nout c\n");
  assert_float_equal(wide[0].block.loop.mma, 0, 0);
  const double steps =
      wide[0].block.loop.fma * static_cast<double>(wide[0].block.trip_count) * blocks_of(wide[0]);
  assert_true(steps > kFmaCycles * 512.0 * 512 * 256 / 32);  // a multiply-add each, and what brings operands
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(points_move_every_byte_once), cmocka_unit_test(transposed_reads_take_whole_sectors),
      cmocka_unit_test(rows_are_read_once_where_they_fit), cmocka_unit_test(products_count_their_tiles)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
