// Every data path with every instruction family, dtype, and sizes that divide and that do not: in the
// emulator against the float reference.
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

KernelSchedule way(std::array<int, 3> warps, int stages, bool tma, bool wgmma, bool producer = false,
                   bool tf32 = false) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tma = tma;
  out.wgmma = wgmma;
  out.producer = producer;
  out.tf32 = tf32;
  return out;
}

struct Path {
  int stages;
  bool tma, producer;
  const char* mark;  // what its text has
};
struct Family {
  bool wgmma, tf32;
  const char *rows, *ragged_rows;  // few where wgmma is not wanted
  const char* mark;
};

// That a case goes the way it is meant to.
void is_marked(const MuGraphCase& test, const Path& path, const Family& family) {
  const EmittedMuGraph program = emitted(test);
  assert_contains(program.kernels, path.mark);
  assert_contains(program.kernels, family.mark);
}

void every_path_takes_every_family(void**) {
  const Family kMma = {false, false, "16", "20", "mma_fragment<"},
               kTf32 = {false, true, "16", "20", "mma_fragment<float"},
               kWgmma = {true, false, "64", "100", "wgmma<"},
               kFma = {false, false, "16", "20", "multiply_add("};
  const std::vector<Family> kNarrow = {kMma, kWgmma}, kWide = {kTf32, kFma};
  std::vector<MuGraphCase> cases;
  for (const Path& path : {Path{0, false, false, "load_elements<"},
                           {3, false, false, "cp_async<"},
                           {3, true, false, "tma_load<"},
                           {3, true, true, "mbarrier_arrive(empty"}})
    for (const char* dtype : {"f16", "bf16", "f32"})
      for (const Family& family : dtype == std::string("f32") ? kWide : kNarrow) {
        if (family.wgmma && path.stages == 0) continue;  // it reads stages
        for (const Sizes& sizes : {Sizes{dtype, family.rows, "128", "64", "2", "2"},
                                   {dtype, family.ragged_rows, "128", "72", "1", "2"}}) {
          cases.push_back(
              sized_case("norm", kNormGraph, kNorm, sizes,
                         way({4, 1, 1}, path.stages, path.tma, family.wgmma, path.producer, family.tf32)));
          is_marked(cases.back(), path, family);
        }
      }
  all_are_right(cases);
}

// Rows of the product along the 64 of wgmma, and its columns (a few rows times many columns).
void tall_products_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* dtype : {"f16", "bf16"})
    for (const Sizes& sizes : {Sizes{dtype, "64", "256", "64", "2", "4"},
                               {dtype, "128", "128", "128", "1", "2"},
                               {dtype, "100", "200", "72", "2", "2"}})
      for (bool tma : {false, true})
        for (const std::array<int, 3>& warps : {std::array{4, 1, 1}, {4, 2, 1}, {8, 1, 1}, {4, 1, 2}})
          cases.push_back(sized_case("norm", kNormGraph, kNorm, sizes, way(warps, 3, tma, true)));
  all_are_right(cases);
}

void flat_products_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* dtype : {"f16", "bf16"})
    for (const Sizes& sizes : {Sizes{dtype, "1", "256", "128", "2", "2"},
                               {dtype, "16", "256", "128", "1", "2"},
                               {dtype, "5", "200", "200", "2", "2"}})
      for (bool tma : {false, true})
        for (const std::array<int, 3>& warps : {std::array{1, 4, 1}, {1, 8, 1}, {1, 4, 2}})
          cases.push_back(sized_case("norm", kNormGraph, kNorm, sizes, way(warps, 2, tma, true)));
  all_are_right(cases);
}

void attention_is_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "128", "64", "128", "2", "2"},
                             {"bf16", "64", "32", "64", "1", "2"},
                             {"f16", "72", "40", "100", "1", "2"}})
    for (bool tma : {false, true})
      cases.push_back(
          sized_case("attention", kAttentionGraph, kAttention, sizes, way({4, 1, 1}, 2, tma, true)));
  all_are_right(cases);
}

const char kChainGraph[] = R"(graph chain
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in v: TYPE[COLUMNS, INNER]
h = matmul(x, w)
g = silu(h)
o = matmul(g, v)
out o
)";
const char kChain[] = R"(mugraph chain
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in v: TYPE[COLUMNS, INNER]
tensor g: TYPE[ROWS, COLUMNS]
tensor o: TYPE[ROWS, INNER]
kernel grid=[GRID] loop=TURNS threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  h = accumulate_sum(xw)
  s = silu(h)
  store(s, g, x=1)
}
kernel grid=[GRID] loop=TURNS threads=128 {
  g0 = load(g, loop=1)
  v0 = load(v, x=1, loop=0)
  gv = matmul(g0, v0)
  y = accumulate_sum(gv)
  store(y, o, x=1)
}
out o
)";

void overlapping_kernels_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& each :
       {way({1, 1, 4}, 0, false, false), way({1, 1, 4}, 3, true, false), way({1, 4, 1}, 2, true, true)}) {
    cases.push_back(sized_case("chain", kChainGraph, kChain, {"f16", "16", "128", "128", "2", "2"}, each));
    cases.back().schedule.kernels[1].pdl = true;
    cases.back().target = "sm_90a";
  }
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_path_takes_every_family),
                              cmocka_unit_test(tall_products_are_right),
                              cmocka_unit_test(flat_products_are_right), cmocka_unit_test(attention_is_right),
                              cmocka_unit_test(overlapping_kernels_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
