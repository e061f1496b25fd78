// Tiles stored by TMA: right in the emulator in every kind of kernel, refused where a word of their order is
// missing or the map is wrong, and where the tile is none that TMA can store.
#include "core/prove/prove_kernel.h"
#include "core/schedule/enumerate.h"
#include "tests/codegen/mutations.h"
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

const char kProduct[] = R"(mugraph product
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

KernelSchedule way(std::array<int, 3> warps, int stages = 0, bool wgmma = false) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tma = out.producer = stages > 0;
  out.wgmma = wgmma;
  out.tma_store = true;
  return out;
}

MuGraphCase product(const Sizes& sizes, const KernelSchedule& each, const char* mugraph = kProduct) {
  MuGraphCase test = sized_case("product", kProductGraph, mugraph, sizes, each);
  test.target = "sm_90a";
  return test;
}

void tiles_are_stored(void**) {
  std::vector<MuGraphCase> cases;
  // Rows of one panel of 128 bytes, of one of 64, and of two.
  for (const Sizes& sizes :
       {Sizes{"f16", "64", "96", "128", "2", "3"}, Sizes{"bf16", "64", "96", "64", "2", "3"},
        Sizes{"f32", "64", "96", "128", "2", "3"}})
    cases.push_back(product(sizes, way({2, 2, 1})));
  // What lies behind the tensor's last column is not stored.
  cases.push_back(product({"f16", "64", "96", "72", "1", "3"}, way({2, 1, 1})));
  // Beside a ring and its mbarriers.
  cases.push_back(product({"f16", "128", "96", "128", "2", "3"}, way({4, 1, 1}, 2, true)));
  cases.push_back(product({"f16", "64", "96", "128", "2", "3"}, way({2, 2, 1}, 3)));
  for (const MuGraphCase& test : cases) {
    assert_contains(emitted(test).kernels, "tma_store<2>(");
  }
  all_are_right(cases);
}

void tiles_are_proved(void**) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  ProveOptions options;
  options.solver = solver.get();
  for (const MuGraphCase& test : {product({"f16", "64", "96", "128", "2", "3"}, way({2, 2, 1})),
                                  product({"f16", "64", "96", "72", "1", "3"}, way({2, 1, 1})),
                                  product({"f16", "128", "96", "128", "2", "3"}, way({4, 1, 1}, 2, true))}) {
    const EmittedMuGraph program = emitted(test);
    assert_int_equal(program.code.size(), 1);
    LaunchedKernel code = program.code[0];
    const Proof proof = prove_kernel(code.kernel, code.facts, options);
    if (!proof.proved()) fail_test(test.label + ": " + proof.summary());
    TensorMap& map = *code.facts.parameters.back().map;
    map.box[0] /= 2;
    const Proof wrong = prove_kernel(code.kernel, code.facts, options);
    assert_non_null(wrong.disproof());
    assert_text_equal(wrong.disproof()->rule, "writers");
  }
}

void faults_are_found(void**) {
  const char kWaits[] = "by tma_store that it did not wait for",
             kFence[] = "with no fence_proxy_async behind it";
  const MuGraphCase test = product({"f16", "64", "96", "128", "2", "3"}, way({2, 2, 1}));
  assert_int_equal(emitted(test).plan.tensor_maps.size(), 1);
  are_found(
      test,
      {
          {"fence_proxy_async();", "", {kFence}},
          {"fence_proxy_async();", "if (warp == 0) fence_proxy_async();", {kFence}},
          {"fence_proxy_async();\n  __syncthreads();", "fence_proxy_async();", {"dynamic shared memory"}},
          {"tma_store_wait<0>();", "", {kWaits}},
          {"tma_store_wait<0>();", "tma_store_wait<1>();", {kWaits}},
          {"tma_store_commit();", "", {kWaits}},
          // A box of half the rows leaves the others as they were, one of twice as many reads what nobody
          // wrote.
          {"", "half a box", {"never written"}, [](Plan& plan) { plan.tensor_maps[0].box[0] /= 2; }},
          {"", "two boxes", {"read of"}, [](Plan& plan) { plan.tensor_maps[0].box[0] *= 2; }},
      });
}

void what_tma_cannot_store_is_refused(void**) {
  const Sizes kWhole = {"f16", "64", "96", "128", "2", "3"};
  auto refused = [](MuGraphCase test, const char* why, const char* target = "sm_90a") {
    test.target = target;
    assert_error(emit(test), ErrorCode::UNSUPPORTED, why);
  };
  assert_ok(emit(product(kWhole, way({2, 2, 1}))));
  refused(product(kWhole, way({2, 2, 1})), "(tma_store): the target has no TMA", "sm_80");
  const char kShape[] = "(tma_store): its rows must be dense and of whole 16 bytes";
  refused(product({"f16", "64", "96", "68", "1", "3"}, way({2, 2, 1})), kShape);
  // Blocks of 20 rows, whose tiles of 32 would write those of others.
  refused(product({"f16", "40", "96", "128", "2", "3"}, way({2, 2, 1})), kShape);
  refused(product({"f16", "64", "128", "128", "2", "2"}, way({2, 2, 1}), kParts), "blocks of a cluster");
  KernelSchedule stays = way({4, 1, 1}, 2, true);
  stays.persistent = 2;
  refused(product({"f16", "128", "96", "128", "2", "3"}, stays), "shared memory that threads write");
}

void the_search_does_not_try_it(void**) {
  const MuGraphCase test = product({"f16", "64", "96", "128", "2", "3"}, way({2, 2, 1}));
  for (const Schedule& each : enumerate_schedules(test.mugraph, **find_target("sm_90a")))
    for (const KernelSchedule& kernel : each.kernels) assert_true(!kernel.tma_store);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(tiles_are_stored), cmocka_unit_test(tiles_are_proved),
                              cmocka_unit_test(faults_are_found),
                              cmocka_unit_test(what_tma_cannot_store_is_refused),
                              cmocka_unit_test(the_search_does_not_try_it)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
