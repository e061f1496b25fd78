// Fragments that warps store row by row, through shared memory that each has for itself: right on friendly and hostile
// inputs, proved, beside the ring of blocks that stay, and left alone where rows are short, there is a residual or no room.
#include <cstring>

#include "tests/codegen/proofs.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr char kRowsOfWarps[] = "threadIdx.x) / 32 * 1024", kWords[] = "exchange_words<";

MuGraphCase one_result(const Sizes& sizes, const KernelSchedule& each) {
  return sized_case("one result", kBiasedProductGraph, kBiasedProduct, sizes, each);
}
MuGraphCase both_results(const Sizes& sizes, const KernelSchedule& each) {
  const auto [graph, mugraph] = two_results();
  return sized_case("two results", graph, mugraph, sizes, each);
}
MuGraphCase residual(const Sizes& sizes, const KernelSchedule& each) {
  const std::string in = "in b: TYPE[COLUMNS]\n", with_residual = in + "in r: TYPE[ROWS, COLUMNS]\n";
  const std::string graph = with(with(kBiasedProductGraph, in, with_residual), "z = silu(s)",
                                 "t = silu(s)\nz = add(t, r)"),
                    mugraph = with(with(kBiasedProduct, in, with_residual), "  o = silu(s)",
                                   "  t = silu(s)\n  r0 = load(r, x=1, y=0)\n  o = add(t, r0)");
  return sized_case("residual", graph, mugraph, sizes, each);
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
    out.push_back(both_results({"bf16", "120", "72", "120", "2", "2"}, way({4, 1, 1}, 64, 64, blocks)));
    out.push_back(both_results({"f16", "72", "64", "240", "2", "1"}, way({4, 2, 1}, 128, 64, blocks)));
  }
  // The warps of the second half repeat what the others do, and store nothing.
  out.push_back(one_result({"f16", "120", "64", "120", "2", "1"}, way({4, 2, 1}, 64, 64, 2)));
  // Rows in memory are columns of wgmma: all of a step, 32 of them, and 16.
  out.push_back(one_result({"bf16", "120", "72", "120", "2", "2"}, way({1, 4, 1}, 64, 64, 2)));
  out.push_back(both_results({"f16", "184", "64", "240", "2", "1"}, way({1, 8, 1}, 128, 96, 2)));
  out.push_back(one_result({"bf16", "30", "64", "120", "2", "1"}, way({1, 4, 1}, 64, 16, 2)));
  KernelSchedule pairs = way({4, 1, 1}, 64, 64, 2, 3);
  pairs.multicast = {1, 2, 1};
  out.push_back(one_result({"bf16", "120", "72", "120", "2", "2"}, pairs));
  KernelSchedule turns = way({4, 1, 1}, 64, 64, 1, 3);
  turns.setmaxnreg = turns.pingpong = true;
  out.push_back(both_results({"f16", "120", "72", "120", "2", "2"}, turns));
  // One result: only blocks that stay do it so, others have room where the ring was.
  out.push_back(one_result({"bf16", "120", "72", "120", "2", "2"}, way({4, 1, 1}, 64, 64, 2)));
  return out;
}

// Two instructions along the rows of a warpgroup, and three warpgroups.
std::vector<MuGraphCase> larger_cases() {
  return {one_result({"bf16", "264", "64", "192", "2", "1"}, way({8, 1, 1}, 128, 256, 2)),
          one_result({"f16", "200", "64", "232", "2", "1"}, way({12, 1, 1}, 192, 192, 2))};
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
  if (!make_z3_solver()) skip_test("built without Z3");
  std::vector<MuGraphCase> all = cases(), larger = larger_cases();
  all.insert(all.end(), larger.begin(), larger.end());
  for (MuGraphCase& test : all) test.target = "sm_90a";
  all_are_proved(all);
}

void other_stores_stay_as_they_are(void**) {
  auto stays = [](MuGraphCase test) {
    test.target = "sm_90a";
    assert_null(strstr(emitted(test).kernels.c_str(), kRowsOfWarps));
    return test;
  };
  std::vector<MuGraphCase> all;
  // 32 columns, and 96; rows that are columns of wgmma in blocks that do not stay, or in steps of eight; a residual.
  all.push_back(stays(one_result({"bf16", "72", "72", "64", "2", "2"}, way({4, 1, 1}, 32, 64, 2))));
  all.push_back(stays(one_result({"bf16", "72", "72", "192", "2", "2"}, way({4, 1, 1}, 96, 64, 2))));
  all.push_back(stays(one_result({"bf16", "120", "72", "120", "2", "2"}, way({1, 4, 1}, 64, 64, 0))));
  all.push_back(stays(one_result({"bf16", "136", "72", "128", "2", "2"}, way({1, 4, 1}, 64, 72, 2))));
  for (int64_t blocks : {0, 2})
    all.push_back(stays(residual({"bf16", "120", "72", "120", "2", "2"}, way({4, 1, 1}, 64, 64, blocks))));
  // The rings of two blocks of an SM have all of the room.
  KernelSchedule full = way({8, 1, 1}, 128, 128, 264, 7);
  full.tile_k = 32;
  all.push_back(stays(one_result({"f16", "200", "72", "232", "2", "3"}, full)));
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
