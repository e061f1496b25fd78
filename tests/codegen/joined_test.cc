// Horizontal fusion: kernels of one launch, by each data path in the emulator against the float reference,
// what they are printed as, what the plan says of them, and what is proved.
#include "core/kernel/builder.h"
#include "core/kernel/join.h"
#include "core/optimize/prove_program.h"
#include "tests/codegen/emulated.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

// Three products of one input, of different widths, and two that read what they make.
const char kProjectionsGraph[] = R"(graph projections
in x: TYPE[ROWS, INNER]
in wq: TYPE[INNER, COLUMNS]
in wk: TYPE[INNER, 40]
in wv: TYPE[INNER, 24]
in u: TYPE[40, 16]
in t: TYPE[16, 8]
h = rms_norm(x, axis=-1, eps=1e-5)
q = matmul(h, wq)
k = matmul(h, wk)
v = matmul(h, wv)
a = silu(q)
b = matmul(k, u)
c = matmul(b, t)
out a
out v
out c
)";
const char kProjections[] = R"(mugraph projections
in x: TYPE[ROWS, INNER]
in wq: TYPE[INNER, COLUMNS]
in wk: TYPE[INNER, 40]
in wv: TYPE[INNER, 24]
in u: TYPE[40, 16]
in t: TYPE[16, 8]
tensor a: TYPE[ROWS, COLUMNS]
tensor v: TYPE[ROWS, 24]
tensor c: TYPE[ROWS, 8]
tensor q: TYPE[ROWS, COLUMNS]
tensor k: TYPE[ROWS, 40]
tensor b: TYPE[ROWS, 16]
kernel grid=[3] loop=TURNS threads=128 {
  x0 = load(x, loop=1)
  w0 = load(wq, x=1, loop=0)
  xw = matmul(x0, w0)
  xx = square(x0)
  row = sum(xx, axis=[1], keepdims=true)
  s = accumulate_sum(xw)
  r = accumulate_sum(row)
  n = extent(x[1])
  mean = div(r, n)
  shifted = add(mean, 1e-05)
  rms = sqrt(shifted)
  y = div(s, rms)
  store(y, q, x=1)
}
kernel grid=[2, 2] threads=128 {
  x0 = load(x, y=0)
  h0 = rms_norm(x0, axis=[1], eps=1e-05)
  w0 = load(wk, x=1)
  y = matmul(h0, w0)
  store(y, k, x=1, y=0)
}
kernel grid=[1, 1, 2] threads=128 {
  x0 = load(x, z=0)
  h0 = rms_norm(x0, axis=[1], eps=1e-05)
  w0 = load(wv)
  y = matmul(h0, w0)
  store(y, v, z=0)
}
kernel grid=[2] threads=128 {
  q0 = load(q, x=0)
  y = silu(q0)
  store(y, a, x=0)
}
kernel grid=[1] threads=128 {
  k0 = load(k)
  u0 = load(u)
  y = matmul(k0, u0)
  store(y, b)
}
kernel grid=[1] threads=128 {
  b0 = load(b)
  t0 = load(t)
  y = matmul(b0, t0)
  store(y, c)
}
out a, v, c
)";

// The first three are a launch, and the two behind them.
MuGraphCase projections(const Sizes& sizes, const KernelSchedule& first, const KernelSchedule& second,
                        bool pdl = false) {
  MuGraphCase out = sized_case("projections", kProjectionsGraph, kProjections, sizes, second);
  out.schedule.kernels[0] = first;
  for (size_t joined : {1, 2, 4}) out.schedule.kernels[joined].joined = true;
  for (size_t behind : {3, 4, 5}) out.schedule.kernels[behind].pdl = pdl;
  if (first.tma || pdl) out.target = "sm_90a";
  out.label += print_schedule(out.schedule);
  return out;
}

void joined_kernels_are_right(void**) {
  std::vector<MuGraphCase> cases;
  const KernelSchedule direct{.warps = {1, 1, 4}}, wide{.warps = {1, 2, 2}};
  for (const Sizes& sizes : {Sizes{"f16", "5", "64", "72", "", "2"}, {"bf16", "20", "96", "100", "", "3"}}) {
    cases.push_back(projections(sizes, direct, wide));
    cases.push_back(projections(sizes, {.warps = {1, 1, 4}, .stages = 2}, direct, true));
    cases.push_back(projections(sizes, {.warps = {1, 1, 4}, .stages = 3, .tma = true}, wide));
  }
  cases.push_back(projections({"f16", "64", "128", "96", "", "2"},
                              {.warps = {4, 1, 1}, .stages = 2, .tma = true, .wgmma = true}, direct, true));
  all_are_right(cases);
}

// Products by a producer warp and barriers of its own, beside each other; grids of different shapes.
const char kPairGraph[] = R"(graph pair
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in v: TYPE[INNER, ROWS]
y = matmul(x, w)
z = matmul(x, v)
out y
out z
)";
const char kPair[] = R"(mugraph pair
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in v: TYPE[INNER, ROWS]
tensor y: TYPE[ROWS, COLUMNS]
tensor z: TYPE[ROWS, ROWS]
kernel grid=[GRID, 2] CLUSTER loop=TURNS threads=128 {
  x0 = load(x, y=0, CUT1 loop=1)
  w0 = load(w, x=1, CUT0 loop=0)
  xw = matmul(x0, w0)
  s = accumulate_sum(xw)
  WHOLE
  store(t, y, x=1, y=0)
}
kernel grid=[2] CLUSTER loop=TURNS threads=128 {
  x0 = load(x, CUT1 loop=1)
  v0 = load(v, x=1, CUT0 loop=0)
  xv = matmul(x0, v0)
  s = accumulate_sum(xv)
  WHOLE
  store(t, z, x=1)
}
out y, z
)";

MuGraphCase pair_of(const Sizes& sizes, const KernelSchedule& way, bool clusters = false) {
  std::string mugraph = kPair;
  for (const auto& [word, by] : {std::pair{"CLUSTER", clusters ? "cluster=2" : ""},
                                 {"CUT0", clusters ? "cluster=0," : ""},
                                 {"CUT1", clusters ? "cluster=1," : ""},
                                 {"WHOLE", clusters ? "t = cluster_sum(s)" : "t = add(s, 0)"}})
    mugraph = with(mugraph, word, by);
  MuGraphCase out = sized_case("pair", kPairGraph, mugraph, sizes, way);
  out.schedule.kernels[1].joined = true;
  if (clusters) out.target = "sm_90a";
  return out;
}

void producers_and_clusters_are_joined(void**) {
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& way :
       {KernelSchedule{.warps = {1, 2, 2}, .stages = 3, .tma = true, .producer = true},
        {.warps = {4, 1, 1}, .stages = 2, .tma = true, .wgmma = true, .producer = true},
        {.warps = {4, 1, 1}, .stages = 2, .tma = true, .wgmma = true, .producer = true, .persistent = 3}})
    cases.push_back(pair_of({"f16", "128", "128", "192", "3", "2"}, way));
  for (const KernelSchedule& way : {KernelSchedule{.warps = {1, 1, 4}}, {.warps = {1, 2, 2}, .stages = 2}})
    cases.push_back(pair_of({"bf16", "24", "128", "72", "2", "2"}, way, true));
  all_are_right(cases);
}

// Launches, and what they must not share: kernels of one launch run at the same time.
void a_launch_has_the_blocks_of_all(void**) {
  const EmittedMuGraph program = emitted(projections({"f16", "5", "64", "72", "", "2"}, {}, {}));
  const std::vector<Launch>& launches = program.plan.launches;
  assert_int_equal(launches.size(), 3);
  assert_int_equal(launches[0].grid.x, 3 + 2 * 2 + 2);
  assert_int_equal(launches[1].grid.x, 2 + 1);
  assert_string_equal(launches[0].kernel.c_str(), "q0_joined");
  for (const Launch& launch : {launches[0], launches[1]}) {
    std::set<int64_t> places;  // all of different tensors
    size_t workspaces = 0;
    for (const LaunchArg& arg : launch.args)
      if (arg.kind == LaunchArg::Kind::workspace && ++workspaces) places.insert(arg.value);
    assert_int_equal(places.size(), workspaces);
  }
  assert_int_equal(program.code.size(), 6);
  assert_int_equal(program.code[3].launch, 1);
  for (size_t b = 0; b < 3; ++b) assert_string_equal(program.blocks[b].function.c_str(), "q0_joined");
  const std::vector<KernelProof> proofs = prove_program(program, nullptr);
  assert_int_equal(proofs.size(), 6);
  for (const KernelProof& each : proofs) assert_null(each.proof.disproof());
}

void what_depends_is_not_joined(void**) {
  const MuGraphCase good = projections({"f16", "5", "64", "72", "", "2"}, {}, {});
  auto refusal = [&](const Schedule& schedule) {
    const auto applied = apply_schedule(good.mugraph, schedule);
    assert_false(applied.ok());
    return applied.status().message();
  };
  Schedule schedule = good.schedule;
  schedule.kernels[3].joined = true;
  assert_true(refusal(schedule).find("depends on") != std::string::npos);
  schedule = good.schedule;
  schedule.kernels[1].warps = {1, 1, 2};
  assert_true(refusal(schedule).find("threads") != std::string::npos);
  schedule = good.schedule;
  schedule.kernels[0].joined = true;
  assert_true(refusal(schedule).find("first kernel") != std::string::npos);
  assert_ok(apply_schedule(good.mugraph, good.schedule));
}

// Rows and points of different shapes that nothing connects, and what is behind both.
const char kApart[] = R"(graph apart
in x: f16[12, 40]
in y: f32[7, 30]
in z: f16[12, 1]
a = silu(x)
b = transpose(y, perm=[1, 0])
c = exp(b)
m = mean(x, axis=1, keepdims=true)
d = mul(m, z)
e = add(d, a)
out a
out c
out e
)";

void independent_kernels_of_the_baseline_share_a_launch(void**) {
  const Graph graph = test_graph(kApart);
  const auto baseline = emit_baseline(graph, **find_target("sm_90a"));
  assert_ok(baseline);
  assert_true(baseline->plan.launches.size() < baseline->code.size());
  assert_int_equal(baseline->work.size(), baseline->code.size());
  size_t joined = 0;
  for (size_t k = 0; k < baseline->code.size(); ++k) {
    joined += baseline->work[k].joined;
    assert_true(baseline->work[k].joined ==
                (k > 0 && baseline->code[k].launch == baseline->code[k - 1].launch));
  }
  assert_int_equal(baseline->plan.launches.size() + joined, baseline->code.size());
  for (const KernelProof& each : prove_program(*baseline, nullptr)) assert_null(each.proof.disproof());
  for (const std::string& failure : find_failures({{"apart", graph}})) fail_test(failure);
}

// Functions of parts among them: a program may have several that were joined.
void all_names_have_the_prefix(void**) {
  const auto baseline =
      emit_baseline(test_graph(kApart), **find_target("sm_90a"), {}, ir::LaunchesDependents::never, "k7_");
  assert_ok(baseline);
  for (const LaunchedKernel& each : baseline->code) assert_true(each.kernel.name.starts_with("k7_q"));
  for (const Launch& launch : baseline->plan.launches) assert_true(launch.kernel.starts_with("k7_q"));
  assert_true(baseline->kernels.find("k7_q0_joined_0_") != std::string::npos);
  assert_true(baseline->kernels.find(" q0_") == std::string::npos);
}

// A kernel that numbers its blocks along all axes, behind one of three blocks.
void parts_find_their_blocks(void**) {
  using namespace ir;
  auto part = [](const char* name, Dim3 grid) {
    const Symbol y = make_memory("y", Space::global, Scalar::f32, true);
    KernelPart out{{}, grid, {}};
    out.kernel.name = name;
    out.kernel.threads = 32;
    out.kernel.parameters = {{y}};
    Builder(out.kernel.body)
        .assign(element(y, (block_index(2) * 5 + block_index(1)) * 4 + block_index(0)), zero(Scalar::f32));
    return out;
  };
  const auto joined = join_kernels("both", {part("front", {3, 1, 1}), part("behind", {4, 5, 6})});
  assert_ok(joined);
  assert_int_equal(joined->grid.x, 3 + 4 * 5 * 6);
  assert_text_equal(print_cuda(*joined), R"(__device__ __forceinline__ void front(float* __restrict__ y) {
  y[(int(blockIdx.z) * 5 + int(blockIdx.y)) * 4 + int(blockIdx.x)] = float{};
}

__device__ __forceinline__ void behind(float* __restrict__ y) {
  const int own_block = int(blockIdx.x) - 3;
  const int own_x = own_block % 4;
  const int own_y = own_block / 4 % 5;
  const int own_z = own_block / 20;
  y[(own_z * 5 + own_y) * 4 + own_x] = float{};
}

extern "C" __global__ void __launch_bounds__(32) both(float* __restrict__ y_0, float* __restrict__ y_1) {
  if (blockIdx.x < 3u) return front(y_0);
  behind(y_1);
}
)");
  KernelPart wider = part("wider", {1, 1, 1});
  wider.kernel.threads = 64;
  assert_false(join_kernels("both", {part("front", {3, 1, 1}), wider}).ok());
  assert_false(join_kernels("both", {part("a", {0x7fffffff, 1, 1}), part("b", {1, 1, 1})}).ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(joined_kernels_are_right),
                              cmocka_unit_test(producers_and_clusters_are_joined),
                              cmocka_unit_test(a_launch_has_the_blocks_of_all),
                              cmocka_unit_test(what_depends_is_not_joined),
                              cmocka_unit_test(independent_kernels_of_the_baseline_share_a_launch),
                              cmocka_unit_test(all_names_have_the_prefix),
                              cmocka_unit_test(parts_find_their_blocks)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
