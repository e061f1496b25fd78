// Fragments that warps store and load row by row, through shared memory that each has for itself: right on friendly and hostile
// inputs, proved, beside the ring of blocks that stay, and left alone where rows are short or there is no room.
#include <cstring>

#include "core/prove/prove_kernel.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr char kRowsOfWarps[] = "threadIdx.x) / 32 * 1024", kWords[] = "exchange_words<";

// A bias, which lies along the rows, a residual, and the sum of both and the product beside its sigmoid linear unit.
const char kGraph[] = R"(graph residual
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in b: TYPE[COLUMNS]
in r: TYPE[ROWS, COLUMNS]
y = matmul(x, w)
t = add(y, b)
s = add(t, r)
z = silu(s)
out OUT
)";
const char kMuGraph[] = R"(mugraph residual
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in b: TYPE[COLUMNS]
in r: TYPE[ROWS, COLUMNS]
tensor s: TYPE[ROWS, COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID, 2] loop=TURNS threads=128 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  b0 = load(b, x=0)
  r0 = load(r, x=1, y=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  t = add(a, b0)
  s = add(t, r0)
  o = silu(s)
  store(s, s, x=1, y=0)
  store(o, z, x=1, y=0)
}
out s, z
)";

MuGraphCase both_sums(const Sizes& sizes, const KernelSchedule& each) {
  return sized_case("two results", with(kGraph, "OUT", "s, z"), kMuGraph, sizes, each);
}
MuGraphCase residual(const Sizes& sizes, const KernelSchedule& each) {
  const std::string mugraph =
      with(with(with(kMuGraph, "tensor s: TYPE[ROWS, COLUMNS]\n", ""), "  store(s, s, x=1, y=0)\n", ""),
           "out s, z", "out z");
  return sized_case("residual", with(kGraph, "OUT", "z"), mugraph, sizes, each);
}

// The residual is of another type.
MuGraphCase cast_residual(const Sizes& sizes, const KernelSchedule& each) {
  auto cast = [](const std::string& text, const std::string& indent, const std::string& r) {
    return with(with(text, "in r: TYPE", "in r: f16"), indent + "s = add(t, " + r + ")",
                indent + "c = cast(" + r + ", dtype=TYPE)\n" + indent + "s = add(t, c)");
  };
  return sized_case("cast residual", cast(with(kGraph, "OUT", "s, z"), "", "r"), cast(kMuGraph, "  ", "r0"),
                    sizes, each);
}

KernelSchedule way(const WarpCounts& warps, int64_t columns, int64_t rows, int64_t blocks, int stages = 2) {
  KernelSchedule out;
  out.warps = warps;
  out.tile = {columns, rows, 0};
  out.tile_k = 64;
  out.stages = stages;
  out.tma = out.producer = out.wgmma = true;
  out.persistent = blocks;
  return out;
}

// The last tiles of rows and columns are not whole.
std::vector<MuGraphCase> cases() {
  std::vector<MuGraphCase> out;
  for (int64_t blocks : {0, 2}) {
    out.push_back(residual({"bf16", "120", "72", "120", "2", "2"}, way({4, 1, 1}, 64, 64, blocks)));
    out.push_back(both_sums({"f16", "72", "64", "240", "2", "1"}, way({4, 2, 1}, 128, 64, blocks)));
  }
  out.push_back(cast_residual({"bf16", "120", "64", "120", "2", "1"}, way({4, 1, 1}, 64, 64, 2)));
  // The warps of the second half repeat what the others do, and store nothing.
  out.push_back(residual({"f16", "120", "64", "120", "2", "1"}, way({4, 2, 1}, 64, 64, 2)));
  // Rows in memory are columns of wgmma: all of a step, 32 of them, and 16.
  out.push_back(residual({"bf16", "120", "72", "120", "2", "2"}, way({1, 4, 1}, 64, 64, 2)));
  out.push_back(both_sums({"f16", "184", "64", "240", "2", "1"}, way({1, 8, 1}, 128, 96, 2)));
  out.push_back(residual({"bf16", "30", "64", "120", "2", "1"}, way({1, 4, 1}, 64, 16, 2)));
  KernelSchedule pairs = way({4, 1, 1}, 64, 64, 2, 3);
  pairs.multicast = {1, 2, 1};
  out.push_back(residual({"bf16", "120", "72", "120", "2", "2"}, pairs));
  KernelSchedule turns = way({4, 1, 1}, 64, 64, 1, 3);
  turns.setmaxnreg = turns.pingpong = true;
  out.push_back(both_sums({"f16", "120", "72", "120", "2", "2"}, turns));
  // One result and nothing that is loaded: only blocks that stay do it so, others have room where the ring was.
  out.push_back(sized_case("biased", kBiasedProductGraph, kBiasedProduct,
                           {"bf16", "120", "72", "120", "2", "2"}, way({4, 1, 1}, 64, 64, 2)));
  return out;
}

// Two instructions along the rows of a warpgroup, and three warpgroups.
std::vector<MuGraphCase> larger_cases() {
  return {residual({"bf16", "264", "64", "192", "2", "1"}, way({8, 1, 1}, 128, 256, 2)),
          residual({"f16", "200", "64", "232", "2", "1"}, way({12, 1, 1}, 192, 192, 2))};
}

void rows_are_right(void**) {
  std::vector<MuGraphCase> all = cases(), larger = larger_cases();
  for (std::vector<MuGraphCase>* some : {&all, &larger})
    for (MuGraphCase& test : *some) {
      test.target = "sm_90a";
      const std::string kernels = emitted(test).kernels;
      assert_contains(kernels, kRowsOfWarps);
      assert_null(strstr(kernels.c_str(), kWords));
    }
  all_are_right_on_hostile_inputs(std::move(all));
  all_are_right(std::move(larger));
}

void they_are_proved(void**) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  ProveOptions options;
  options.solver = solver.get();
  std::vector<MuGraphCase> all = cases(), larger = larger_cases();
  all.insert(all.end(), larger.begin(), larger.end());
  for (MuGraphCase& test : all) {
    test.target = "sm_90a";
    LaunchedKernel code = emitted(test).code[0];
    const Proof proof = prove_kernel(code.kernel, code.facts, options);
    if (!proof.proved()) fail_test(test.label + ": " + proof.summary());
  }
}

void other_stores_stay_as_they_are(void**) {
  auto stays = [](MuGraphCase test) {
    test.target = "sm_90a";
    assert_null(strstr(emitted(test).kernels.c_str(), kRowsOfWarps));
    return test;
  };
  std::vector<MuGraphCase> all;
  // 32 columns, and 96; rows that are columns of wgmma in blocks that do not stay, or in steps of eight.
  all.push_back(stays(residual({"bf16", "72", "72", "64", "2", "2"}, way({4, 1, 1}, 32, 64, 2))));
  all.push_back(stays(residual({"bf16", "72", "72", "192", "2", "2"}, way({4, 1, 1}, 96, 64, 2))));
  all.push_back(stays(residual({"bf16", "120", "72", "120", "2", "2"}, way({1, 4, 1}, 64, 64, 0))));
  KernelSchedule eights = way({1, 4, 1}, 64, 72, 2);
  all.push_back(stays(residual({"bf16", "136", "72", "128", "2", "2"}, eights)));
  // The rings of two blocks of an SM have all of the room.
  KernelSchedule full = way({8, 1, 1}, 128, 128, 264, 7);
  full.tile_k = 32;
  all.push_back(stays(sized_case("biased", kBiasedProductGraph, kBiasedProduct,
                                 {"f16", "200", "72", "232", "2", "3"}, full)));
  all_are_right(std::move(all));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_right),
      cmocka_unit_test(they_are_proved),
      cmocka_unit_test(other_stores_stay_as_they_are),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
