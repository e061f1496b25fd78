// Tiles whose extents are no powers of two, of products by wgmma: right in the emulator in all orders of operands, on
// friendly and hostile inputs, counted by the model as they are lowered, proved, and refused where registers or
// warps in the middle would have to be left out.
#include <cstring>

#include "core/kernel/count.h"
#include "core/prove/prove_kernel.h"
#include "core/schedule/block_work.h"
#include "tests/codegen/proofs.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr WarpCounts kThree = {12, 1, 1}, kThreeOfColumns = {1, 12, 1};

// Whether x and w lie transposed.
struct Order {
  bool x = false, w = false;
};
constexpr Order kOrders[] = {{false, false}, {false, true}, {true, false}, {true, true}};

struct Operand {
  std::string in, tensor, transposed, name;
};
Operand operand(const std::string& name, bool turned, const std::string& rows, const std::string& columns) {
  const std::string whole = ": TYPE[" + rows + ", " + columns + "]\n";
  if (!turned) return {"in " + name + whole, "", "", name};
  const std::string other = name + "t";
  return {"in " + name + ": TYPE[" + columns + ", " + rows + "]\n", "tensor " + other + whole,
          other + " = transpose(" + name + ", perm=[1, 0])\n", other};
}

// GRID tiles of columns, and two of rows.
MuGraphCase product(const Sizes& sizes, const KernelSchedule& schedule, const Order& order = {}) {
  const Operand x = operand("x", order.x, "ROWS", "INNER"), w = operand("w", order.w, "INNER", "COLUMNS");
  const std::string inputs = x.in + w.in + "in b: TYPE[COLUMNS]\nin r: TYPE[ROWS, COLUMNS]\n",
                    transposed = x.transposed + w.transposed;
  const std::string graph =
      "graph product\n" + inputs + transposed + "y = matmul(" + x.name + ", " + w.name + R"()
s = add(y, b)
t = silu(s)
z = add(t, r)
out z
)";
  const std::string mugraph = "mugraph product\n" + inputs + "tensor z: TYPE[ROWS, COLUMNS]\n" + x.tensor +
                              w.tensor + transposed +
                              "kernel grid=[GRID, 2] loop=TURNS threads=128 {\n  x0 = load(" + x.name +
                              ", y=0, loop=1)\n  w0 = load(" + w.name + R"(, x=1, loop=0)
  b0 = load(b, x=0)
  r0 = load(r, x=1, y=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  s = add(a, b0)
  t = silu(s)
  o = add(t, r0)
  store(o, z, x=1, y=0)
}
out z
)";
  return sized_case(std::string("product") + (order.x ? " xt" : "") + (order.w ? " wt" : ""), graph, mugraph,
                    sizes, schedule);
}

KernelSchedule way(const WarpCounts& warps, int64_t columns, int64_t rows, int stages = 2) {
  KernelSchedule out;
  out.warps = warps;
  out.tile = {columns, rows, 0};
  out.tile_k = 64;
  out.stages = stages;
  out.tma = out.producer = out.wgmma = true;
  return out;
}

// The last tiles of rows and columns are not whole.
void columns_end_before_a_power_of_two(void**) {
  std::vector<MuGraphCase> cases;
  for (const Order& order : kOrders) {
    cases.push_back(product({"bf16", "120", "72", "168", "2", "2"}, way({4, 1, 1}, 96, 64), order));
    cases.push_back(product({"f16", "72", "128", "304", "2", "2"}, way({4, 1, 1}, 160, 64), order));
    cases.push_back(product({"bf16", "144", "96", "384", "2", "2"}, way({8, 1, 1}, 192, 128), order));
    cases.push_back(product({"f16", "72", "64", "232", "2", "1"}, way({4, 1, 1}, 224, 64), order));
    // Rows are the columns of wgmma.
    cases.push_back(product({"bf16", "136", "72", "232", "2", "2"}, way({1, 8, 1}, 128, 96), order));
  }
  for (const MuGraphCase& test : cases) {
    const TileExtents& tile = test.schedule.kernels[0].tile;
    const int64_t columns = test.schedule.kernels[0].warps[0] == 1 ? tile[1] : tile[0];
    assert_contains(emitted(test).kernels, "16, " + std::to_string(columns) + ">(&");
  }
  all_are_right(cases);
}

// Where rows of a panel are columns of wgmma, and have K next to each other.
std::vector<MuGraphCase> in_steps_of_eight() {
  std::vector<MuGraphCase> cases;
  for (const bool x_turned : {false, true})
    cases.push_back(
        product({"bf16", "120", "72", "176", "2", "2"}, way({4, 1, 1}, 88, 64), {x_turned, true}));
  cases.push_back(product({"f16", "72", "128", "336", "2", "2"}, way({4, 1, 1}, 168, 64), {false, true}));
  for (const bool w_turned : {false, true}) {
    cases.push_back(
        product({"bf16", "140", "72", "200", "2", "2"}, way({1, 4, 1}, 64, 72), {false, w_turned}));
    cases.push_back(
        product({"f16", "144", "96", "232", "2", "2"}, way({1, 8, 1}, 128, 104), {false, w_turned}));
  }
  return cases;
}

void columns_may_be_any_eight(void**) {
  const std::vector<MuGraphCase> cases = in_steps_of_eight();
  for (const MuGraphCase& test : cases) {
    const KernelSchedule& each = test.schedule.kernels[0];
    const int64_t columns = each.tile[each.warps[0] == 1 ? 1 : 0];
    assert_contains(emitted(test).kernels, "16, " + std::to_string(columns) + ">(&");
  }
  all_are_right_on_hostile_inputs(cases);
  // Rows of a panel that have columns next to each other.
  MuGraphCase test = product({"f16", "72", "128", "336", "2", "2"}, way({4, 1, 1}, 168, 64), {false, false});
  test.target = "sm_90a";
  assert_false(emit(test).ok());
}

// The last ones begin earlier, so that TMA brings rows that are there; who was in front stores what both have.
void last_tiles_are_whole(void**) {
  std::vector<MuGraphCase> cases;
  // Rows of results that begin at 2 and 8 bytes.
  for (const char* columns : {"101", "100"})
    cases.push_back(product({"bf16", "140", "72", columns, "2", "2"}, way({1, 4, 1}, 64, 72), {false, true}));
  KernelSchedule pairs = way({8, 1, 1}, 96, 128, 3);
  pairs.multicast = {1, 2, 1};
  cases.push_back(product({"bf16", "200", "72", "232", "2", "2"}, pairs, {false, true}));
  KernelSchedule staying = way({8, 1, 1}, 96, 128, 3);
  staying.persistent = 2;
  cases.push_back(product({"bf16", "200", "72", "232", "2", "2"}, staying, {false, true}));
  KernelSchedule stored = way({8, 1, 1}, 96, 128);
  stored.tma_store = true;
  cases.push_back(product({"f16", "200", "72", "232", "2", "2"}, stored, {false, true}));
  std::vector<MuGraphCase> proved = in_steps_of_eight();  // which are right, as seen above
  proved.insert(proved.end(), cases.begin(), cases.end());
  for (MuGraphCase& test : proved) {
    test.target = "sm_90a";
    assert_contains(emitted(test).kernels, "_own");
  }
  all_are_proved(proved);
  all_are_right_on_hostile_inputs(std::move(cases));
  // All are.
  MuGraphCase test = product({"bf16", "128", "72", "192", "2", "1"}, way({4, 1, 1}, 96, 64), {false, true});
  test.target = "sm_90a";
  assert_null(strstr(emitted(test).kernels.c_str(), "_own"));
}

// Rows of the result are columns of the product.
MuGraphCase turned(const Sizes& sizes, const KernelSchedule& schedule) {
  const char kGraph[] = R"(graph turned
in x: TYPE[INNER, COLUMNS]
in w: TYPE[ROWS, INNER]
xt = transpose(x, perm=[1, 0])
wt = transpose(w, perm=[1, 0])
y = matmul(xt, wt)
z = relu(y)
out z
)";
  const char kMuGraph[] = R"(mugraph turned
in x: TYPE[INNER, COLUMNS]
in w: TYPE[ROWS, INNER]
tensor z: TYPE[COLUMNS, ROWS]
kernel grid=[GRID, 2] loop=TURNS threads=128 {
  w0 = load(w, y=0, loop=1)
  x0 = load(x, x=1, loop=0)
  wx = matmul(w0, x0)
  a = accumulate_sum(wx)
  t = transpose(a, perm=[1, 0])
  r = relu(t)
  store(r, z, x=0, y=1)
}
out z
)";
  return sized_case("turned", kGraph, kMuGraph, sizes, schedule);
}

void assert_possible_by_the_model(const std::vector<MuGraphCase>& cases) {
  for (const MuGraphCase& test : cases) {
    const auto applied = apply_schedule(test.mugraph, test.schedule);
    assert_ok(applied);
    assert_true(block_work(*applied, applied->kernels[0], test.schedule.kernels[0], **find_target("sm_90a"))
                    .is_possible);
  }
}

void results_may_lie_transposed(void**) {
  std::vector<MuGraphCase> cases;
  cases.push_back(turned({"bf16", "144", "96", "384", "2", "2"}, way({8, 1, 1}, 192, 128)));
  cases.push_back(turned({"f16", "72", "128", "304", "2", "2"}, way({4, 1, 1}, 160, 64)));
  cases.push_back(turned({"bf16", "200", "96", "232", "2", "2"}, way(kThree, 192, 192)));
  cases.push_back(turned({"f16", "384", "72", "72", "2", "2"}, way(kThree, 64, 192)));
  cases.push_back(turned({"bf16", "136", "72", "232", "2", "2"}, way({1, 8, 1}, 128, 96)));
  cases.push_back(turned({"bf16", "104", "72", "200", "2", "2"}, way(kThreeOfColumns, 192, 96)));
  KernelSchedule staying = way(kThreeOfColumns, 192, 96, 3);
  staying.persistent = 2;
  cases.push_back(turned({"bf16", "104", "72", "200", "2", "2"}, staying));
  assert_possible_by_the_model(cases);
  all_are_right(cases);
}

void rows_are_three_times_those_of_a_warpgroup(void**) {
  std::vector<MuGraphCase> cases;
  for (const Order& order : kOrders) {
    cases.push_back(product({"bf16", "200", "96", "232", "2", "2"}, way(kThree, 192, 192), order));
    cases.push_back(product({"f16", "384", "72", "72", "2", "2"}, way(kThree, 64, 192), order));
    // Of one warpgroup, and three of the columns.
    cases.push_back(product({"f16", "200", "96", "72", "2", "2"}, way({4, 1, 1}, 64, 192), order));
    cases.push_back(product({"bf16", "104", "72", "200", "2", "2"}, way(kThreeOfColumns, 192, 96), order));
  }
  // Two instructions of each warpgroup.
  cases.push_back(product({"bf16", "392", "64", "40", "2", "1"}, way(kThree, 32, 384)));
  all_are_right(cases);
}

std::vector<KernelSchedule> ways() {
  std::vector<KernelSchedule> out;
  for (KernelSchedule each : {way(kThree, 192, 192, 3), way({8, 1, 1}, 160, 128)}) {
    out.push_back(each);
    each.setmaxnreg = true;
    out.push_back(each);
    each.persistent = 2;
    out.push_back(each);
    for (const ClusterShape& pairs : {ClusterShape{2, 1, 1}, ClusterShape{1, 2, 1}}) {
      each.multicast = pairs;
      for (int64_t blocks : {0, 2}) {
        each.persistent = blocks;
        out.push_back(each);
      }
    }
    each.multicast = {1, 1, 1};
    each.persistent = 0;
    each.tma_store = true;
    out.push_back(each);
    each.tma_store = false;
    each.tile_k = 128;  // two panels
    each.stages = 2;
    out.push_back(each);
  }
  return out;
}

// Two tiles of rows and columns each, the last ones of which are not whole.
MuGraphCase ragged(const KernelSchedule& each, const Order& order) {
  const bool three = each.warps == kThree;
  return product({"bf16", three ? "200" : "136", "136", three ? "232" : "168", "2", "2"}, each, order);
}

// TMA brings 192 queries to a place for 256, which wgmma reads there.
MuGraphCase kept_queries() {
  KernelSchedule rows = way(kThree, 0, 0, 3);
  rows.tile = {0, 0, 192};
  rows.overlap = rows.setmaxnreg = rows.shared_a = true;
  rows.persistent = 2;
  return sized_case("attention", kAttentionGraph, kAttention, {"bf16", "500", "64", "192", "2", "3"}, rows);
}

void all_ways_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& each : ways())
    for (const Order& order : {Order{false, false}, Order{true, true}}) cases.push_back(ragged(each, order));
  all_are_right(cases);
}

void hostile_inputs_are_right(void**) {
  std::vector<MuGraphCase> cases = {
      ragged(way(kThree, 192, 192), {false, true}), ragged(way({8, 1, 1}, 160, 128), {true, false}),
      turned({"bf16", "104", "72", "200", "2", "2"}, way(kThreeOfColumns, 192, 96)), kept_queries()};
  all_are_right_on_hostile_inputs(std::move(cases));
}

// By stmatrix, from fragments that have rows or, where its columns are rows of wgmma, columns; then two results, one after the
// other.
void results_go_through_shared_memory(void**) {
  const Texts one = {kBiasedProductGraph, kBiasedProduct}, two = two_results();
  std::vector<MuGraphCase> cases;
  auto add = [&](const char* instruction, const std::string& graph, const std::string& mugraph,
                 const Sizes& sizes, const KernelSchedule& each) {
    cases.push_back(sized_case("stored", graph, mugraph, sizes, each));
    cases.back().target = "sm_90a";
    assert_contains(emitted(cases.back()).kernels, instruction);
  };
  add("stmatrix_at", kBiasedProductGraph, kBiasedProduct, {"bf16", "140", "72", "232", "2", "2"},
      way({4, 1, 1}, 128, 64));
  add("stmatrix_at", kBiasedProductGraph, kBiasedProduct, {"f16", "200", "96", "160", "2", "2"},
      way({8, 1, 1}, 96, 128));
  for (const auto& [graph, mugraph] : {one, two}) {
    add("stmatrix_trans_at", graph, mugraph, {"bf16", "140", "72", "200", "2", "2"}, way({1, 4, 1}, 64, 72));
    add("stmatrix_trans_at", graph, mugraph, {"f16", "140", "72", "256", "2", "2"}, way({1, 8, 1}, 128, 128));
  }
  all_are_right_on_hostile_inputs(std::move(cases));
}

// Rows of queries, also with the second product under the softmax of the next iteration; and parts of a product that
// a cluster sums.
void other_kernels_are_right(void**) {
  const Sizes kKeys = {"bf16", "200", "64", "192", "2", "3"};
  KernelSchedule rows = way(kThree, 0, 0, 3);
  rows.tile = {0, 0, 192};
  std::vector<MuGraphCase> cases = {sized_case("attention", kAttentionGraph, kAttention, kKeys, rows)};
  rows.overlap = rows.setmaxnreg = true;
  cases.push_back(sized_case("attention", kAttentionGraph, kAttention, kKeys, rows));
  cases.push_back(kept_queries());
  KernelSchedule parts = way({12, 1, 1}, 128, 0);
  parts.tile_k = 32;
  cases.push_back(sized_case("parts", kProductGraph, kParts, {"f16", "384", "64", "232", "2", "1"}, parts));
  all_are_right(cases);
}

// Few rows, whose columns are cut for all SMs, and parts of the inner dimension summed by a cluster: the last tile is not whole.
void few_rows_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const auto& [rows, columns, tile] :
       {std::tuple{"48", "232", 96}, {"64", "304", 160}, {"40", "384", 192}})
    for (int stages : {2, 3}) {
      const Sizes sizes = {stages == 2 ? "bf16" : "f16", rows, "256", columns, "2", "2"};
      cases.push_back(sized_case("parts", kProductGraph, kParts, sizes, way({4, 1, 1}, tile, 0, stages)));
    }
  assert_possible_by_the_model(cases);
  all_are_right_on_hostile_inputs(cases);
}

void they_are_proved(void**) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  ProveOptions options;
  options.solver = solver.get();
  for (const KernelSchedule& each : ways()) {
    const MuGraphCase test = ragged(each, {});
    LaunchedKernel code = emitted(test).code[0];
    const Proof proof = prove_kernel(code.kernel, code.facts, options);
    if (!proof.proved()) fail_test(test.label + ": " + proof.summary());
    // As much of the tile as a power of two has is not all that the tile's sums are of.
    for (ir::ParameterFacts& parameter : code.facts.parameters)
      if (parameter.map) parameter.map->box[0] /= 2;
    assert_non_null(prove_kernel(code.kernel, code.facts, options).disproof());
  }
  const EmittedMuGraph kept = emitted(kept_queries());
  assert_non_null(std::strstr(kept.source.c_str(), "tma_load<3, true>(s"));  // the queries
  LaunchedKernel code = kept.code[0];
  assert_true(prove_kernel(code.kernel, code.facts, options).proved());
  for (ir::ParameterFacts& parameter : code.facts.parameters)  // fewer bytes than the mbarrier waits for
    if (parameter.map && parameter.map->box[1] == 192) parameter.map->box[1] = 128;
  assert_non_null(prove_kernel(code.kernel, code.facts, options).disproof());
}

void the_model_counts_what_there_is(void**) {
  for (const KernelSchedule& each : ways()) {
    if (each.persistent > 0) continue;
    const std::string rows = std::to_string(2 * each.tile[1]), columns = std::to_string(2 * each.tile[0]);
    const MuGraphCase test = product({"bf16", rows.c_str(), "256", columns.c_str(), "2", "2"}, each);
    const EmittedMuGraph program = emitted(test);
    const LaunchedKernel& code = program.code[0];
    const auto applied = apply_schedule(test.mugraph, test.schedule);
    assert_ok(applied);
    const BlockWork work =
        block_work(*applied, applied->kernels[0], test.schedule.kernels[0], **find_target(test.target));
    const auto trips = static_cast<double>(work.trip_count);
    const ir::Counts counts = ir::count_block(code.kernel, code.facts, {});
    assert_true(work.is_possible);
    assert_float_equal(16 * 8 * 16 * 2 * trips * work.loop.wgmma, counts.wgmma_flops, 1e-6);
    assert_float_equal(counts.wgmma_flops, 2.0 * static_cast<double>(each.tile[0] * each.tile[1]) * 256,
                       1e-6);
    assert_float_equal(trips * work.loop.copies, counts.tma_loads, 1e-6);
    assert_true(each.stages * work.loop_room <= static_cast<double>(code.kernel.shared_bytes));
    const double mbarriers = 16.0 * each.stages;
    assert_true(each.stages * work.loop_room + mbarriers >= static_cast<double>(code.kernel.shared_bytes));
  }
}

// What registers and warps in the middle would have to be left out for, what is no whole part of
// an instruction, and what threads read.
void other_tiles_are_refused(void**) {
  const Sizes kSizes = {"bf16", "400", "128", "640", "2", "2"};
  auto refused = [&](const KernelSchedule& each, const char* why) {
    const MuGraphCase test = product(kSizes, each);
    assert_error(emit(test), ErrorCode::UNSUPPORTED, why);
  };
  auto impossible = [&](const KernelSchedule& each, const char* why) {
    refused(each, why);
    const MuGraphCase test = product(kSizes, each);
    const auto applied = apply_schedule(test.mugraph, test.schedule);
    assert_ok(applied);
    assert_false(
        block_work(*applied, applied->kernels[0], test.schedule.kernels[0], **find_target(test.target))
            .is_possible);
  };
  const char kThreads[] = "tiles of no power of two are for wgmma alone",
             kOfThree[] = "three warpgroups are for products by wgmma";
  impossible(way({8, 1, 1}, 64, 192), kThreads);   // 96 rows of a warpgroup
  impossible(way({4, 2, 1}, 192, 64), kThreads);   // 96 columns
  impossible(way({4, 1, 1}, 192, 128), kThreads);  // two instructions along the rows
  impossible(way({4, 1, 1}, 192, 192), kThreads);
  impossible(way({4, 1, 1}, 320, 64), kThreads);  // more columns than an instruction has
  impossible(way({8, 1, 1}, 192, 64), kThreads);
  impossible(way({4, 1, 1}, 64, 96), kThreads);
  impossible(way(kThree, 64, 128), kOfThree);
  impossible(way(kThree, 64, 320), kOfThree);
  refused(way({4, 1, 1}, 200, 64), "by TMA");  // of 32 columns there is no whole number
  auto misfits = [&](KernelSchedule each) {
    assert_error(emit(product(kSizes, each)), ErrorCode::INVALID_ARGUMENT, "warps requires");
  };
  misfits(way({6, 1, 1}, 64, 192));
  misfits(way({4, 3, 1}, 192, 64));
  KernelSchedule alone = way(kThree, 64, 192);
  alone.producer = false;
  misfits(alone);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(columns_end_before_a_power_of_two),
      cmocka_unit_test(columns_may_be_any_eight),
      cmocka_unit_test(last_tiles_are_whole),
      cmocka_unit_test(results_may_lie_transposed),
      cmocka_unit_test(rows_are_three_times_those_of_a_warpgroup),
      cmocka_unit_test(all_ways_are_right),
      cmocka_unit_test(hostile_inputs_are_right),
      cmocka_unit_test(results_go_through_shared_memory),
      cmocka_unit_test(few_rows_are_right),
      cmocka_unit_test(other_kernels_are_right),
      cmocka_unit_test(they_are_proved),
      cmocka_unit_test(the_model_counts_what_there_is),
      cmocka_unit_test(other_tiles_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
