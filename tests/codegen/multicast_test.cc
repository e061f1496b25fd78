// Pairs of blocks that share tiles by TMA multicast: right in the emulator along each axis of the grid, refused when one does
// not wait for the other, and not made where tiles are not shared or threads read them.
#include "core/codegen/mugraph_emitter.h"
#include "core/emulator/emulator.h"
#include "core/verify/reference.h"
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr ClusterShape kAlongX = {2, 1, 1}, kAlongY = {1, 2, 1}, kAlongZ = {1, 1, 2};

// GRID tiles of columns, and two of rows.
const char kTiles[] = R"(mugraph product
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

KernelSchedule way(ClusterShape multicast, int64_t persistent = 0, std::array<int, 3> warps = {4, 1, 1}, int stages = 2) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tma = out.producer = out.wgmma = true;
  out.multicast = multicast;
  out.persistent = persistent;
  return out;
}

MuGraphCase product(const Sizes& sizes, const KernelSchedule& each) {
  MuGraphCase test = sized_case("product", kProductGraph, kTiles, sizes, each);
  test.target = "sm_90a";
  return test;
}

auto emitted(const MuGraphCase& test) {
  const auto target = find_target(test.target);
  assert_ok(target);
  return emit_mugraph(test.graph, test.mugraph, test.schedule, **target);
}

void shared_tiles_are_right(void**) {
  std::vector<MuGraphCase> cases;
  const Sizes kWhole = {"bf16", "128", "96", "256", "4", "3"}, kHalf = {"f16", "128", "192", "256", "2", "3"};
  for (const ClusterShape& shape : {kAlongX, kAlongY})
    for (int64_t blocks : {0, 2, 4})
      for (const Sizes& sizes : {kWhole, kHalf}) cases.push_back(product(sizes, way(shape, blocks)));
  for (const MuGraphCase& test : cases) {
    const auto program = emitted(test);
    assert_ok(program);
    assert_contains(program->kernels, "tma_load_multicast<2>(");
    assert_contains(program->kernels, "mbarrier_arrive_at(empty");
  }
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(shared_tiles_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
