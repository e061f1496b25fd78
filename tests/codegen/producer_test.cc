// Blocks with a producer warp: right in the emulator when stages go round several times, refused when a word
// of their synchronisation is missing or wrong, and not made of what TMA cannot bring.
#include <algorithm>

#include "core/schedule/enumerate.h"
#include "tests/codegen/mutations.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

KernelSchedule way(std::array<int, 3> warps, int stages, bool wgmma) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tma = out.producer = true;
  out.wgmma = wgmma;
  return out;
}

void stages_go_round(void**) {
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& each :
       {way({1, 1, 4}, 2, false), way({1, 1, 1}, 3, false), way({1, 4, 1}, 2, true), way({1, 4, 2}, 3, true)})
    cases.push_back(sized_case("norm", kNormGraph, kNorm, {"f16", "16", "512", "128", "2", "8"}, each));
  // Tiles that take several copies.
  cases.push_back(
      sized_case("norm", kNormGraph, kNorm, {"f16", "16", "1024", "64", "1", "2"}, way({1, 1, 4}, 2, false)));
  // Warps that exchange within an iteration, and those that need not.
  for (const KernelSchedule& each :
       {way({1, 1, 2}, 2, false), way({1, 2, 1}, 3, false), way({4, 1, 1}, 2, true)})
    cases.push_back(
        sized_case("attention", kAttentionGraph, kAttention, {"bf16", "64", "32", "160", "1", "5"}, each));
  all_are_right(cases);
}

// A product whose parts are summed by a cluster: no block's memory goes while others read it. Where the blocks are no power of
// two, those of one share what is stored.
struct Parts {
  const char *cluster, *inner;
};
constexpr Parts kClusters[] = {
    {"cluster=2", "512"}, {"cluster=3", "1408"}, {"cluster=5", "1408"}, {"cluster=6", "1408"}};

MuGraphCase in_parts(const Parts& parts, const char* rows, KernelSchedule each) {
  each.tile_k = 64;
  return sized_case("parts", kProductGraph, with(kParts, "cluster=2", parts.cluster),
                    {"f16", rows, parts.inner, "128", "2", "4"}, each);
}

void clusters_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& each : {way({1, 1, 2}, 2, false), way({1, 4, 1}, 2, true)})
    for (const Parts& parts : kClusters)
      for (const char* rows : {"16", "64"}) cases.push_back(in_parts(parts, rows, each));
  all_are_right(cases);
}

void a_power_of_two_of_blocks_store(void**) {
  const EmittedMuGraph program = emitted(in_parts(kClusters[3], "64", way({1, 4, 1}, 2, true)));
  assert_true(program.kernels.find("rank < 4") != std::string::npos);
}

// Blocks that stay for several tiles: as many as there are, fewer, one, and more than there are.
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

KernelSchedule staying(KernelSchedule from, int64_t blocks) {
  from.persistent = blocks;
  return from;
}

void persistent_blocks_are_right(void**) {
  std::vector<MuGraphCase> cases;
  const Sizes kSix = {"bf16", "128", "96", "192", "3", "3"};
  for (int64_t blocks : {1, 4, 6, 100})
    cases.push_back(
        sized_case("parts", kProductGraph, kTiles, kSix, staying(way({4, 1, 1}, 2, true), blocks)));
  // Without wgmma; more stages than a tile has iterations.
  cases.push_back(sized_case("parts", kProductGraph, kTiles, kSix, staying(way({2, 1, 1}, 4, false), 5)));
  // Iterations that wait for their products.
  cases.push_back(sized_case("attention", kAttentionGraph, kAttention, {"bf16", "128", "32", "160", "2", "5"},
                             staying(way({4, 1, 1}, 2, true), 1)));
  all_are_right(cases);
}

// Where operands do not fit the L2 cache, blocks that run at the same time are neighbours along both axes: some along y come
// before the next along x.
void neighbours_along_both_axes_come_together(void**) {
  const char kMany[] = R"(mugraph parts
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID, 8] loop=TURNS threads=128 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z, x=1, y=0)
}
out z
)";
  std::vector<MuGraphCase> cases;
  for (int64_t blocks : {0, 7, 12}) {
    cases.push_back(sized_case("parts", kProductGraph, kMany, {"bf16", "512", "32", "1280", "40", "2"},
                               staying(way({4, 1, 1}, 2, true), blocks)));
    cases.back().l2_mib = 0;
    const std::string text = emitted(cases.back()).source;
    assert_int_equal(
        text.find(blocks == 0 ? "int(blockIdx.x) % 8" : "const int first = tile % ") != std::string::npos,
        true);
    cases.back().l2_mib = 50;
    assert_true(emitted(cases.back()).source != text);
    cases.back().l2_mib = 0;
  }
  all_are_right(cases);
}

// Two groups that take tiles in turns: of an even number and an odd one, of one tile and of more blocks than there are;
// products that are waited for, registers of the producer's, and mma.sync.
void groups_in_turns_are_right(void**) {
  std::vector<MuGraphCase> cases;
  const Sizes kSix = {"bf16", "128", "96", "192", "3", "3"};
  auto in_turns = [](KernelSchedule from, int64_t blocks) {
    from = staying(from, blocks);
    from.pingpong = true;
    return from;
  };
  for (int64_t blocks : {1, 2, 4, 6, 100})
    cases.push_back(
        sized_case("parts", kProductGraph, kTiles, kSix, in_turns(way({4, 1, 1}, 2, true), blocks)));
  KernelSchedule moving = in_turns(way({4, 1, 1}, 4, true), 1);
  moving.setmaxnreg = true;
  cases.push_back(sized_case("parts", kProductGraph, kTiles, kSix, moving));
  cases.push_back(sized_case("parts", kProductGraph, kTiles, kSix, in_turns(way({2, 1, 1}, 4, false), 2)));
  cases.push_back(sized_case("attention", kAttentionGraph, kAttention, {"bf16", "128", "32", "160", "2", "5"},
                             in_turns(way({4, 1, 1}, 2, true), 1)));
  all_are_right(cases);
  const MuGraphCase faulty =
      sized_case("parts", kProductGraph, kTiles, kSix, in_turns(way({4, 1, 1}, 2, true), 1));
  const char kWait[] = "mbarrier_wait(may_begin + group, (turn / 2 ^ group ^ 1) & 1);",
             kEnd[] = "mbarrier_arrive(may_begin + 1 - group);";
  const std::vector<const char*> kTooEarly = {"no synchronisation between", "asynchronous copy", "deadlock"};
  are_found(faulty, {{kWait, "", kTooEarly},
                     {kWait, "mbarrier_wait(may_begin + group, (turn / 2 ^ group) & 1);", kTooEarly},
                     {kEnd, "", {"deadlock"}},
                     {kEnd, "mbarrier_arrive(may_begin + group);", {"deadlock"}}});
}

// Products of one iteration under what is computed in the next: of few iterations and of more than there are
// stages, by one warpgroup and two, by blocks that stay, with registers of the producer's, and of ragged keys.
void overlapped_products_are_right(void**) {
  std::vector<MuGraphCase> cases;
  auto overlapped = [](KernelSchedule from, bool moves_registers) {
    from.overlap = true;
    from.setmaxnreg = moves_registers;
    return from;
  };
  for (const Sizes& sizes :
       {Sizes{"bf16", "64", "32", "160", "1", "5"}, Sizes{"f16", "64", "64", "64", "1", "2"}})
    for (const int stages : {3, 4})
      cases.push_back(sized_case("attention", kAttentionGraph, kAttention, sizes,
                                 overlapped(way({4, 1, 1}, stages, true), false)));
  // Of 128 columns products are long, and half of the exponentials are held in front of the wait for them.
  for (const char* depth : {"32", "128"})
    cases.push_back(sized_case("attention", kAttentionGraph, kAttention,
                               {"bf16", "128", depth, "160", "1", "5"},
                               overlapped(way({8, 1, 1}, 3, true), true)));
  assert_contains(emitted(cases.back()).source, "schedule_fence(");
  cases.push_back(sized_case("attention", kAttentionGraph, kAttention, {"bf16", "128", "32", "160", "2", "5"},
                             staying(overlapped(way({4, 1, 1}, 3, true), true), 1)));
  // The last tile of keys is not whole.
  KernelSchedule ragged = overlapped(way({4, 1, 1}, 3, true), false);
  ragged.tile_k = 64;
  cases.push_back(
      sized_case("attention", kAttentionGraph, kAttention, {"bf16", "64", "32", "200", "1", "4"}, ragged));
  all_are_right(cases);
}

void planted_faults_are_found(void**) {
  const char kArrive[] = "mbarrier_arrive(empty + iteration % 2);",
             kWait[] = "mbarrier_wait(full + iteration % 2, iteration / 2 & 1);";
  are_found(
      sized_case("attention", kAttentionGraph, kAttention, {"f16", "16", "32", "128", "1", "4"},
                 way({1, 1, 2}, 2, false)),
      {
          {"mbarrier_wait(empty + iteration % 2, iteration / 2 & 1 ^ 1);", "", {"more than 1 arrivals"}},
          {"iteration / 2 & 1 ^ 1", "iteration / 2 & 1", {"deadlock"}},
          {kArrive, "", {"deadlock"}},
          {"mbarrier_init(empty, 2)", "mbarrier_init(empty, 1)", {"race: write", "deadlock"}},
          {"mbarrier_init(empty, 2)", "mbarrier_init(empty, 3)", {"deadlock"}},
          {"    __syncwarp();\n    if (lane == 0) {\n      mbarrier_arrive",
           "    if (lane == 0) {\n      mbarrier_arrive",
           {"race: write"}},
          {kWait, "", {"asynchronous copy"}},
          {kWait, "mbarrier_wait(full + iteration % 2, 0);", {"deadlock"}},
          {"barrier_of<64>();", "", {"dynamic shared memory"}},
          {"barrier_of<64>();", "barrier_of<32>();", {"parts of warps", "uninitialised read"}},
          {"barrier_of<64>();", "barrier_of<96>();", {"deadlock"}},
          {"barrier_of<64>();", "__syncthreads();", {"deadlock"}},
      });
  // Tensor cores are still at work on an iteration when the next one begins.
  const char kBack[] =
      "if (0 < iteration && lane == 0) {\n      mbarrier_arrive(empty + (iteration - 1) % 2);";
  are_found(
      sized_case("norm", kNormGraph, kNorm, {"f16", "16", "256", "128", "1", "4"}, way({1, 4, 1}, 2, true)),
      {{kBack,
        "if (lane == 0) {\n      mbarrier_arrive(empty + iteration % 2);",
        {"which a wgmma still reads"}},
       {"wgmma_wait<1>();", "", {"which a wgmma still reads"}},
       {"wgmma_wait<0>();", "", {"sums of a wgmma"}}});
}

void faults_of_persistent_blocks_are_found(void**) {
  const char kLast[] =
      "wgmma_landed(a_3);\n    __syncwarp();\n    if (lane == 0) {\n      mbarrier_arrive(empty + ";
  are_found(sized_case("parts", kProductGraph, kTiles, {"bf16", "128", "96", "192", "3", "3"},
                       staying(way({4, 1, 1}, 2, true), 4)),
            {{"(turn * 3 + iteration) / 2 & 1 ^ 1", "iteration / 2 & 1 ^ 1", {"which a wgmma still reads"}},
             {kLast,
              "wgmma_landed(a_3);\n    __syncwarp();\n    if (false) {\n      mbarrier_arrive(empty + ",
              {"wait"}}});
}

void persistent_blocks_share_what_the_producer_brings(void**) {
  const MuGraphCase test = sized_case("norm", kNormGraph, kNorm, {"f16", "16", "512", "128", "2", "8"},
                                      staying(way({1, 1, 4}, 2, false), 2));
  assert_error(emit(test), ErrorCode::UNSUPPORTED,
               "persistent blocks cannot have shared memory that threads write");
}

// Attention with a bias, over keys that lie as values do.
const char kKeys[] = "in k: TYPE[2, INNER, COLUMNS]\n",
           kKeysAsValues[] = "in k: TYPE[2, COLUMNS, INNER]\nin c: TYPE[ROWS, COLUMNS]\n",
           kTransposed[] = "kt = transpose(k, perm=[0, 2, 1])\n";
const std::string kBiasedGraph = with(with(with(kAttentionGraph, kKeys, kKeysAsValues), "s = matmul(q, k)\n",
                                           kTransposed + std::string("s = matmul(q, kt)\na = add(s, c)\n")),
                                      "softmax(s,", "softmax(a,");
const std::string kBiased =
    with(with(with(with(with(kAttention, kKeys, kKeysAsValues), "kernel grid",
                        std::string("tensor kt: TYPE[2, INNER, COLUMNS]\n") + kTransposed + "kernel grid"),
                   "load(k, x=0, loop=2)\n", "load(kt, x=0, loop=2)\n  c0 = load(c, z=0, loop=1)\n"),
              "s = matmul(q0, k0)\n  top = max(s,", "s = matmul(q0, k0)\n  a = add(s, c0)\n  top = max(a,"),
         "d = sub(s, m)", "d = sub(a, m)");

// Of heads of 40, 72, 80 and 96 sums have no more columns than these, whatever room their tiles have; stored by threads in
// vectors of as many as registers permit, or by TMA.
void columns_end_where_the_operand_does(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* depth : {"40", "72", "80", "96"}) {
    for (const bool overlaps : {false, true}) {
      KernelSchedule each = way({4, 1, 1}, 3, true);
      each.overlap = overlaps;
      each.shared_a = overlaps;
      cases.push_back(
          sized_case("attention", kAttentionGraph, kAttention, {"bf16", "64", depth, "160", "1", "5"}, each));
    }
    assert_contains(emitted(cases.back()).source, (std::string("wgmma<bf16, ") + depth + ">").c_str());
    for (const bool by_tma : {false, true}) {
      KernelSchedule each = way({4, 1, 1}, 2, true);
      each.tma_store = by_tma;
      cases.push_back(
          sized_case("product", kProductGraph, kTiles, {"f16", "128", "64", depth, "1", "2"}, each));
      assert_contains(emitted(cases.back()).source, (std::string("wgmma<f16, ") + depth + ">").c_str());
    }
  }
  all_are_right_on_hostile_inputs(std::move(cases));
}

// The same under a causal mask: tiles that are masked wholly are passed over, with intervals or without.
const std::string kCausalGraph =
    with(kBiasedGraph, "p = softmax(a, axis=-1)",
         "i = iota(shape=[ROWS, COLUMNS], axis=0)\nj = iota(shape=[ROWS, COLUMNS], axis=1)\n"
         "m = le(j, i)\nt = where(m, a, -inf)\np = softmax(t, axis=-1)");
const std::string kCausal = with(
    with(kBiased, "kt = transpose(k, perm=[0, 2, 1])\n",
         "tensor i: i32[ROWS, COLUMNS]\ntensor j: i32[ROWS, COLUMNS]\nkt = transpose(k, perm=[0, 2, 1])\n"
         "i = iota(shape=[ROWS, COLUMNS], axis=[0], dtype=i32)\nj = iota(shape=[ROWS, COLUMNS], axis=[1], "
         "dtype=i32)\n"),
    "  a = add(s, c0)\n",
    "  b = add(s, c0)\n  i0 = load(i, z=0, loop=1)\n  j0 = load(j, z=0, loop=1)\n  m0 = le(j0, i0)\n"
    "  a = where(m0, b, -inf)\n");

// Rows of an odd number of elements begin off 16 bytes. Threads have them in registers anyway, but for what a product takes.
void threads_load_what_the_engine_cannot_bring(void**) {
  const Sizes kOdd = {"bf16", "128", "32", "159", "2", "5"};
  std::vector<MuGraphCase> cases;
  auto add = [&](KernelSchedule each, bool overlaps = false) {
    each.overlap = overlaps;
    each.tile_k = 32;
    cases.push_back(sized_case("biased", kBiasedGraph, kBiased, kOdd, each));
  };
  add(way({4, 1, 1}, 2, true));
  add(way({4, 1, 1}, 3, true), true);
  add(staying(way({4, 1, 1}, 3, true), 1), true);
  add(way({2, 1, 1}, 2, false));
  for (const bool overlaps : {false, true})
    for (const bool intervals : {false, true}) {
      if (overlaps && !intervals) continue;
      KernelSchedule each = way({4, 1, 1}, 3, true);
      each.tile_k = 32;
      each.overlap = overlaps;
      each.intervals = intervals;
      cases.push_back(sized_case("causal", kCausalGraph, kCausal, kOdd, each));
    }
  for (const MuGraphCase& each : cases) {
    const std::vector<Schedule> all = enumerate_schedules(each.mugraph, **find_target("sm_90a"));
    assert_true(std::any_of(all.begin(), all.end(),
                            [](const Schedule& schedule) { return schedule.kernels.back().producer; }));
    assert_int_equal(emitted(each).plan.tensor_maps.size(), 2);
  }
  all_are_right_on_hostile_inputs(std::move(cases));
}

void what_the_engine_cannot_bring_is_refused(void**) {
  auto norm = [](const Sizes& sizes, const KernelSchedule& each, const char* target = "sm_90a") {
    MuGraphCase test = sized_case("norm", kNormGraph, kNorm, sizes, each);
    test.target = target;
    return test;
  };
  const Sizes kWhole = {"f16", "16", "256", "128", "2", "2"}, kOdd = {"f16", "16", "256", "130", "1", "2"};
  assert_ok(emit(norm(kWhole, way({1, 1, 2}, 2, false))));
  assert_error(emit(norm(kWhole, way({1, 1, 2}, 2, false), "sm_80")), ErrorCode::UNSUPPORTED, "0 of these 2");
  assert_error(emit(norm(kOdd, way({1, 1, 2}, 2, false))), ErrorCode::UNSUPPORTED, "1 of these 2");
  for (const Sizes& sizes : {kWhole, kOdd}) {
    const MuGraphCase test = norm(sizes, way({1, 1, 2}, 2, false));
    const std::vector<Schedule> all = enumerate_schedules(test.mugraph, **find_target("sm_90a"));
    const auto offered = std::count_if(all.begin(), all.end(),
                                       [](const Schedule& schedule) { return schedule.kernels[0].producer; });
    assert_int_equal(offered > 0, sizes.columns == kWhole.columns);
  }
  KernelSchedule without = way({1, 1, 2}, 2, false);
  without.tma = false;
  assert_error(emit(norm(kWhole, without)), ErrorCode::INVALID_ARGUMENT, "tma");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(stages_go_round),
                              cmocka_unit_test(clusters_are_right),
                              cmocka_unit_test(a_power_of_two_of_blocks_store),
                              cmocka_unit_test(persistent_blocks_are_right),
                              cmocka_unit_test(neighbours_along_both_axes_come_together),
                              cmocka_unit_test(groups_in_turns_are_right),
                              cmocka_unit_test(overlapped_products_are_right),
                              cmocka_unit_test(planted_faults_are_found),
                              cmocka_unit_test(faults_of_persistent_blocks_are_found),
                              cmocka_unit_test(persistent_blocks_share_what_the_producer_brings),
                              cmocka_unit_test(columns_end_where_the_operand_does),
                              cmocka_unit_test(threads_load_what_the_engine_cannot_bring),
                              cmocka_unit_test(what_the_engine_cannot_bring_is_refused)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
