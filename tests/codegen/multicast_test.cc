// Pairs of blocks that share tiles by TMA multicast: right in the emulator along each axis of the grid,
// refused when one does not wait for the other, and not made where no tile is shared or threads read what is.
#include "core/jit/compiler.h"
#include "core/kernel/count.h"
#include "core/prove/prove_kernel.h"
#include "core/schedule/block_work.h"
#include "tests/codegen/mutations.h"
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

const char kBatchGraph[] = R"(graph batch
in x: TYPE[2, ROWS, INNER]
in w: TYPE[2, INNER, COLUMNS]
z = matmul(x, w)
out z
)";
const char kBatch[] = R"(mugraph batch
in x: TYPE[2, ROWS, INNER]
in w: TYPE[2, INNER, COLUMNS]
tensor z: TYPE[2, ROWS, COLUMNS]
kernel grid=[GRID, 2, 2] loop=TURNS threads=128 {
  x0 = load(x, z=0, y=1, loop=2)
  w0 = load(w, z=0, x=2, loop=1)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z, z=0, x=2, y=1)
}
out z
)";

// The second kernel overlaps with the first, and loads its weights meanwhile.
const char kChainGraph[] = R"(graph chain
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, INNER]
in v: TYPE[INNER, COLUMNS]
y = matmul(x, w)
z = matmul(y, v)
out z
)";
const char kChain[] = R"(mugraph chain
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, INNER]
in v: TYPE[INNER, COLUMNS]
tensor y: TYPE[ROWS, INNER]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID, 2] loop=TURNS threads=128 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, y, x=1, y=0)
}
kernel grid=[GRID, 2] loop=TURNS threads=128 {
  y0 = load(y, y=0, loop=1)
  v0 = load(v, x=1, loop=0)
  yv = matmul(y0, v0)
  b = accumulate_sum(yv)
  store(b, z, x=1, y=0)
}
out z
)";

KernelSchedule way(ClusterShape multicast, int64_t persistent = 0, std::array<int, 3> warps = {4, 1, 1},
                   int stages = 2) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tma = out.producer = out.wgmma = true;
  out.multicast = multicast;
  out.persistent = persistent;
  return out;
}

const Sizes kWhole = {"bf16", "128", "96", "256", "4", "3"};

void are_shared_and_right(const std::vector<MuGraphCase>& cases) {
  for (const MuGraphCase& test : cases) {
    const EmittedMuGraph program = emitted(test);
    assert_contains(program.kernels, "tma_load_multicast<");
    assert_contains(program.kernels, "mbarrier_arrive_at(empty");
    for (const Launch& launch : program.plan.launches) assert_int_equal(launch.cluster.count(), 2);
  }
  all_are_right(cases);
}

// Halves of rows, and of panels: a row of columns has 256 bytes in the second kind.
void shared_tiles_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const ClusterShape& shape : {kAlongX, kAlongY})
    for (int64_t blocks : {0, 2, 4})
      for (const Sizes& sizes : {kWhole, Sizes{"f16", "128", "256", "256", "2", "2"}})
        cases.push_back(sized_case("product", kProductGraph, kTiles, sizes, way(shape, blocks)));
  // More stages than iterations; two warpgroups, with registers of the producer's; operands swapped.
  KernelSchedule many = way(kAlongX, 2, {8, 1, 1}, 4);
  many.setmaxnreg = true;
  cases.push_back(
      sized_case("product", kProductGraph, kTiles, {"bf16", "256", "192", "128", "2", "3"}, many));
  cases.push_back(sized_case("product", kProductGraph, kTiles, kWhole, way(kAlongY, 0, {1, 4, 1}, 3)));
  are_shared_and_right(cases);
}

// The last tiles of rows, columns and the inner dimension are not whole.
void ragged_tiles_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const ClusterShape& shape : {kAlongX, kAlongY})
    for (int64_t blocks : {0, 4})
      for (const char* dtype : {"f16", "bf16"}) {
        KernelSchedule each = way(shape, blocks);
        each.tile = {64, 64, 0};
        each.tile_k = 32;
        cases.push_back(sized_case("biased", kBiasedProductGraph, kBiasedProduct,
                                   {dtype, "120", "104", "232", "4", "4"}, each));
      }
  are_shared_and_right(cases);
}

void other_kernels_are_right(void**) {
  std::vector<MuGraphCase> cases;
  const Sizes kFew = {"f16", "128", "64", "128", "2", "2"};
  for (const ClusterShape& shape : {kAlongX, kAlongY})
    for (int64_t blocks : {0, 4})
      cases.push_back(sized_case("batch", kBatchGraph, kBatch, kFew, way(shape, blocks)));
  KernelSchedule stored = way(kAlongX);
  stored.tma_store = true;
  cases.push_back(sized_case("product", kProductGraph, kTiles, kWhole, stored));
  MuGraphCase chain =
      sized_case("chain", kChainGraph, kChain, {"bf16", "128", "128", "128", "2", "4"}, way(kAlongX));
  chain.schedule.kernels[1].pdl = true;
  cases.push_back(std::move(chain));
  // Rows of queries share keys and values.
  const Sizes kKeys = {"bf16", "128", "32", "160", "2", "5"};
  cases.push_back(sized_case("attention", kAttentionGraph, kAttention, kKeys, way(kAlongZ)));
  KernelSchedule under = way(kAlongZ, 0, {4, 1, 1}, 3);
  under.overlap = true;
  cases.push_back(sized_case("attention", kAttentionGraph, kAttention, kKeys, under));
  under.persistent = 2;
  cases.push_back(sized_case("attention", kAttentionGraph, kAttention, kKeys, under));
  under.warps = {8, 1, 1};
  under.persistent = 6;  // of 8 tiles
  cases.push_back(
      sized_case("attention", kAttentionGraph, kAttention, {"bf16", "512", "32", "160", "4", "5"}, under));
  are_shared_and_right(cases);
}

void planted_faults_are_found(void**) {
  const char kReads[] = "which a wgmma still reads", kPending[] = "is still under way", kRace[] = "race: ";
  are_found(
      sized_case("product", kProductGraph, kTiles, {"bf16", "128", "256", "128", "2", "8"}, way(kAlongX)),
      {
          // A stage is free when both blocks have read it.
          {"mbarrier_init(empty, 8)",
           "mbarrier_init(empty, 4)",
           {"more than 4 arrivals", kReads, kPending, kRace}},
          {", lane);", ", rank);", {kReads, kPending, kRace, "more than 8 arrivals"}},
          {"lane < 2", "lane == rank", {"deadlock"}},
          {"wgmma_wait<1>();", "", {kReads}},
          // Both blocks are there when one signals the other, and until the last signal.
          {"mbarrier_init_fence();\n  }\n  cluster_sync();",
           "mbarrier_init_fence();\n  }\n  __syncthreads();",
           {"may not have begun"}},
          {"  cluster_sync();\n}", "}", {"has ended"}},
          // Halves are those of the ranks, for both.
          {"rank * ", "0 * ", {kPending, "uninitialised read", kRace}},
          {", 3, {", ", 1, {", {"deadlock"}},
          {", 3, {", ", 7, {", {"of a cluster of 2"}},
      });
}

void what_blocks_cannot_share_is_refused(void**) {
  auto refused = [](const MuGraphCase& test, const char* why) {
    assert_error(emit(test), ErrorCode::UNSUPPORTED, why);
  };
  refused(sized_case("product", kProductGraph, kTiles, {"bf16", "128", "96", "192", "3", "3"}, way(kAlongX)),
          "there are 3 tiles along x, which are no pairs");
  refused(sized_case("product", kProductGraph, kTiles, kWhole, way(kAlongZ)), "there are 1 tiles along z");
  refused(sized_case("batch", kBatchGraph, kBatch, {"f16", "128", "64", "128", "2", "2"}, way(kAlongZ)),
          "all tiles of the loop are cut along z");
  refused(sized_case("parts", kProductGraph, kParts, {"f16", "16", "512", "256", "2", "4"},
                     way(kAlongX, 0, {1, 4, 1})),
          "they form clusters that cut the loop");
  // The norm reads x as well.
  refused(sized_case("norm", kNormGraph, kNorm, {"f16", "16", "256", "256", "2", "4"},
                     way(kAlongX, 0, {1, 4, 1})),
          "and not wgmma alone");
  auto misfits = [](KernelSchedule schedule) {
    assert_error(emit(sized_case("product", kProductGraph, kTiles, kWhole, schedule)),
                 ErrorCode::INVALID_ARGUMENT, "multicast requires");
  };
  KernelSchedule by_warps = way(kAlongX);
  by_warps.wgmma = false;
  misfits(by_warps);
  misfits(way({2, 2, 1}));
  misfits(way(kAlongX, 3));
  KernelSchedule clustered = way(kAlongX);
  clustered.cluster = 2;
  misfits(clustered);
}

// Bytes, by the kernel's statements and by the model.
void each_block_asks_for_half(void**) {
  const double x = 128 * 96 / 2 * 2, w = 96 * 256 / 4 * 2;
  for (const auto& [shape, bytes] : {std::pair(ClusterShape{1, 1, 1}, x + w), std::pair(kAlongX, x / 2 + w),
                                     std::pair(kAlongY, x + w / 2)}) {
    const MuGraphCase test = sized_case("product", kProductGraph, kTiles, kWhole, way(shape));
    const EmittedMuGraph program = emitted(test);
    const LaunchedKernel& code = program.code[0];
    assert_float_equal(ir::count_mean_block(code.kernel, code.facts).tma_load_bytes, bytes, 1e-6);
    const auto applied = apply_schedule(test.mugraph, test.schedule);
    assert_ok(applied);
    const BlockWork work =
        block_work(*applied, applied->kernels[0], test.schedule.kernels[0], **find_target(test.target));
    assert_float_equal(work.loop_l2 * static_cast<double>(work.trip_count), bytes, 1e-6);
  }
}

void both_blocks_are_proved(void**) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  ProveOptions options;
  options.solver = solver.get();
  for (const ClusterShape& shape : {kAlongX, kAlongY})
    for (int64_t blocks : {0, 4}) {
      LaunchedKernel code =
          emitted(sized_case("product", kProductGraph, kTiles, kWhole, way(shape, blocks))).code[0];
      const Proof proof = prove_kernel(code.kernel, code.facts, options);
      if (!proof.proved()) fail_test(proof.summary());
      // Boxes of half the rows leave bytes that nobody brings.
      for (ir::ParameterFacts& parameter : code.facts.parameters)
        if (parameter.map) parameter.map->box[0] /= 2;
      const Proof wrong = prove_kernel(code.kernel, code.facts, options);
      assert_non_null(wrong.disproof());
      assert_text_equal(wrong.disproof()->rule, "phases");
    }
}

void nvrtc_takes_it(void**) {
  const auto compiler = open_nvrtc("");
  if (!compiler) skip_test("there is no NVRTC: " + compiler.status().message());
  for (const char* source : {kTiles, kBatch}) {
    const bool batch = source == kBatch;
    const EmittedMuGraph program =
        emitted(sized_case("product", batch ? kBatchGraph : kProductGraph, source, kWhole, way(kAlongX)));
    const auto output = (*compiler)->compile({program.source, "sm_90a", {}});
    assert_ok(output);
    assert_true(output->cubin.size() > 0);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(shared_tiles_are_right),
                              cmocka_unit_test(ragged_tiles_are_right),
                              cmocka_unit_test(other_kernels_are_right),
                              cmocka_unit_test(planted_faults_are_found),
                              cmocka_unit_test(what_blocks_cannot_share_is_refused),
                              cmocka_unit_test(each_block_asks_for_half),
                              cmocka_unit_test(both_blocks_are_proved),
                              cmocka_unit_test(nvrtc_takes_it)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
