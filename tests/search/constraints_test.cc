// Mirage's search parameters as constraints.
#include "core/search/constraints.h"

#include "core/mugraph/text.h"
#include "core/search/search.h"
#include "tests/search/examples.h"

namespace quern {

namespace {

void searches_keep_to_them(void**) {
  SearchOptions options;
  options.constraints.griddims = {{96, 1, 1}, {64, 1, 1}};
  options.constraints.franges = {16, 32};
  options.constraints.fmaps = {-1, 0, 1};
  const Result<SearchResult> result = search(example("rmsnorm_b8"), **find_target("sm_90a"), options);
  assert_ok(result);
  assert_true(!result->candidates.empty());
  for (const Candidate& candidate : result->candidates) {
    assert_true(options.constraints.allow(candidate.mugraph));
    for (const MuKernel& kernel : candidate.mugraph.kernels) {
      assert_true(kernel.grid[0] == 96 || kernel.grid[0] == 64);
      assert_int_equal(kernel.grid[1], 1);
      assert_true(kernel.trip_count == 16 || kernel.trip_count == 32);
    }
  }
}

void what_is_not_allowed_is_not_found(void**) {
  SearchOptions options;
  options.constraints.griddims = {{7, 5, 3}};
  const Result<SearchResult> result = search(example("rmsnorm_b8"), **find_target("sm_90a"), options);
  assert_ok(result);
  assert_true(result->candidates.empty());
}

void maps(void**) {
  const Result<MuGraph> mugraph = parse_mugraph(
      "mugraph g\nin x: f32[8, 16]\ntensor y: f32[8, 16]\nkernel grid=[2, 4] threads=128 {\n"
      "  a = load(x, x=0, y=1)\n  b = exp(a)\n  store(b, y, x=0, y=1)\n}\nout y\n");
  assert_ok(mugraph);
  Constraints constraints;
  assert_true(constraints.allow(*mugraph));
  constraints.imaps = {{0, 1, -1}};
  constraints.omaps = {{0, 1, 2}};  // z has one part: where it lies does not matter
  constraints.blockdims = {{32, 4, 1}};
  assert_true(constraints.allow(*mugraph));
  constraints.imaps = {{1, 0, -1}};
  assert_false(constraints.allow(*mugraph));
  constraints.imaps.clear();
  constraints.blockdims = {{64, 1, 1}};
  assert_false(constraints.allow(*mugraph));
  constraints.blockdims.clear();
  constraints.fmaps = {0};
  assert_false(constraints.allow(*mugraph));
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(searches_keep_to_them),
      cmocka_unit_test(what_is_not_allowed_is_not_found),
      cmocka_unit_test(maps),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
