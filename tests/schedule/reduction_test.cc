// Reductions executed step by step on all sample layouts.
#include "core/schedule/reduction.h"

#include <map>

#include "tests/schedule/layout_samples.h"
#include "tests/schedule/layouts.h"
#include "tests/schedule/simulate.h"
#include "tests/support/test.h"

using namespace quern;

static int64_t weight(int64_t element) { return (element * 2654435761 >> 7) % 1000003; }

// `layout` has inputs register, lane, warp.
static void expect_reduces(const Layout& layout, std::string_view dim) {
  const Layout slice = layout.without_output(dim);
  RegisterFile values = fill(layout);
  std::map<int64_t, std::map<int64_t, int64_t>> elements_of;  // each element once
  for (uint64_t x = 0; x >> layout.input_bits() == 0; ++x)
    elements_of[slice.apply(x)][layout.apply(x)] = weight(layout.apply(x));
  for (auto& warp : values)
    for (auto& lane : warp)
      for (int64_t& value : lane) value = weight(value);
  for (const ReductionStep& step : reduction_steps(layout, dim)) {
    const RegisterFile before = values;
    for (size_t w = 0; w < values.size(); ++w)
      for (size_t l = 0; l < values[w].size(); ++l)
        for (size_t r = 0; r < values[w][l].size(); ++r)
          values[w][l][r] += before[w ^ step.warps][l ^ step.lanes][r ^ step.registers];
  }
  const RegisterFile at = fill(slice);
  for (size_t w = 0; w < values.size(); ++w)
    for (size_t l = 0; l < values[w].size(); ++l)
      for (size_t r = 0; r < values[w][l].size(); ++r) {
        int64_t sum = 0;
        for (auto [element, value] : elements_of[at[w][l][r]]) sum += value;
        assert_int_equal(values[w][l][r], sum);
      }
}

static void samples_reduce_along_both_dimensions(void**) {
  for (int warps : {1, 2, 4})
    for (const LayoutSample& sample : register_samples(64, 32, warps))
      for (std::string_view dim : {"m", "n"}) expect_reduces(sample.layout, dim);
}

static void random_layouts_reduce(void**) {
  std::mt19937_64 random(31);
  for (int i = 0; i < 300; ++i)
    for (std::string_view dim : {"m", "n"})
      expect_reduces(random_layout(random, i % 4, i % 5, i % 3, 3, 3), dim);
}

// A row of an accumulator lies in one thread's register pairs and in the four lanes of a group.
static void a_row_of_an_accumulator_takes_two_shuffles(void**) {
  const DimSize sizes[] = {{"n", 32}, {"m", 16}};
  const std::vector<ReductionStep> steps = reduction_steps(cover(mma_c("m", "n"), sizes), "n");
  assert_int_equal(steps.size(), 5);
  for (size_t i = 0; i < steps.size(); ++i) {
    assert_int_equal(steps[i].lanes, i < 3 ? 0 : i == 3 ? 1 : 2);
    assert_int_equal(steps[i].warps, 0);
    assert_int_equal(steps[i].registers != 0, i < 3);
  }
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(samples_reduce_along_both_dimensions),
                              cmocka_unit_test(random_layouts_reduce),
                              cmocka_unit_test(a_row_of_an_accumulator_takes_two_shuffles)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
