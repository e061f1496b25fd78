// Loads whose registers are wanted along another dimension than memory goes on in: they come as memory has them and
// move through shared memory, so that neither they nor what is stored of them are accessed in parts of sectors.
#include "core/kernel/count.h"
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

// GRID tiles of columns, and two of rows.
constexpr char kGraph[] = R"(graph turned
in x: TYPE[COLUMNS, ROWS]
t = transpose(x, perm=[1, 0])
out t
)";
constexpr char kKernel[] = R"(mugraph turned
in x: TYPE[COLUMNS, ROWS]
tensor t: TYPE[ROWS, COLUMNS]
tensor turned: TYPE[ROWS, COLUMNS]
turned = transpose(x, perm=[1, 0])
kernel grid=[GRID, 2] threads=128 {
  v0 = load(turned, x=1, y=0)
  store(v0, t, x=1, y=0)
}
out t
)";

// Beside a row that is read as it lies, and behind a sum over it.
constexpr char kUsedGraph[] = R"(graph used
in x: TYPE[COLUMNS, ROWS]
in w: TYPE[ROWS, COLUMNS]
t = transpose(x, perm=[1, 0])
y = mul(t, w)
s = sum(t, axis=1)
out y, s
)";
constexpr char kUsed[] = R"(mugraph used
in x: TYPE[COLUMNS, ROWS]
in w: TYPE[ROWS, COLUMNS]
tensor y: TYPE[ROWS, COLUMNS]
tensor s: TYPE[ROWS]
tensor turned: TYPE[ROWS, COLUMNS]
turned = transpose(x, perm=[1, 0])
kernel grid=[2] threads=128 {
  t0 = load(turned, x=0)
  w0 = load(w, x=0)
  y0 = mul(t0, w0)
  s0 = sum(t0, axis=1)
  store(y0, y, x=0)
  store(s0, s, x=0)
}
out y, s
)";

MuGraphCase turned(const char* dtype, const char* rows, const char* columns, int64_t tile) {
  KernelSchedule way;
  way.warps = {2, 2, 1};
  way.tile = {tile, tile, 0};
  return sized_case("turned", kGraph, kKernel, {dtype, rows, "", columns, "2", ""}, way);
}

MuGraphCase used(const char* dtype, const char* rows, const char* columns, const WarpCounts& warps) {
  KernelSchedule way;
  way.warps = warps;
  return sized_case("used", kUsedGraph, kUsed, {dtype, rows, "", columns, "2", ""}, way);
}

void they_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* dtype : {"f32", "bf16", "f16", "i32", "bool"}) {
    cases.push_back(turned(dtype, "128", "128", 64));
    cases.push_back(turned(dtype, "96", "80", 64));  // the last tiles are not whole
    cases.push_back(turned(dtype, "61", "33", 32));  // nor aligned
  }
  for (const WarpCounts& warps : {WarpCounts{1, 4, 1}, WarpCounts{4, 1, 1}, WarpCounts{2, 1, 2}})
    for (const char* dtype : {"f32", "bf16"}) {
      cases.push_back(used(dtype, "64", "64", warps));
      cases.push_back(used(dtype, "24", "40", warps));
    }
  all_are_right(cases);
}

ir::AccessCount all(const ir::Counts& counts, ir::Path path) {
  ir::AccessCount sum;
  for (const auto& [bytes, count] : counts.of(path)) sum.moved += count.moved;
  return sum;
}

void whole_sectors_are_accessed(void**) {
  for (const auto& [dtype, bytes] : {std::pair("f32", 4), std::pair("bf16", 2)}) {
    const EmittedMuGraph program = emitted(turned(dtype, "128", "128", 64));
    const ir::Counts counts = ir::count_mean_block(program.code[0].kernel, program.code[0].facts);
    const double tile = 64 * 64 * bytes;
    assert_float_equal(all(counts, ir::Path::global_load).moved * 32, tile, 0.5);
    assert_float_equal(all(counts, ir::Path::global_store).moved * 32, tile, 0.5);
    // Once in and out, where banks do not conflict.
    assert_float_equal(counts.bytes(ir::Path::shared_store), 64 * 64 * 4, 0.5);
    assert_true(all(counts, ir::Path::shared_store).moved * 128 <= 2 * 64 * 64 * 4);
    assert_true(all(counts, ir::Path::shared_load).moved * 128 <= 2 * 64 * 64 * 4);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(they_are_right), cmocka_unit_test(whole_sectors_are_accessed)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
