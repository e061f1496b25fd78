// The hostile classes: each holds what its row promises, for every dtype, the same bytes for a seed.
#include "core/verify/hostile.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/base/hash.h"
#include "core/graph/text.h"
#include "core/verify/reference.h"
#include "tests/support/test.h"

using namespace quern;

constexpr DType kFloats[] = {DType::f16, DType::bf16, DType::f32};
constexpr uint64_t kSeeds = 40;

static TensorDesc dense(DType dtype, const Ints& shape) { return {"x", dtype, shape, dense_strides(shape)}; }

static RealTensor draw(const char* name, DType dtype, const Ints& shape, uint64_t seed) {
  const HostileClass* cls = find_hostile_class(name);
  assert_non_null(cls);
  const TensorDesc desc = dense(dtype, shape);
  return read_buffer(desc, hostile_buffer(desc, 0, *cls, seed).data());
}

static double largest_finite(DType dtype) {
  return dtype == DType::f16 ? 65504 : dtype == DType::bf16 ? 0x1.fep127 : 0x1.fffffep127;
}

// How many of kSeeds draws satisfy `holds`.
static int count(const char* name, DType dtype, const Ints& shape,
                 const std::function<bool(const RealTensor&)>& holds) {
  int seeds = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) seeds += holds(draw(name, dtype, shape, seed));
  return seeds;
}

// Whether all `length` elements from `start` on are `value`.
static bool run_of(const RealTensor& elements, size_t start, size_t length, double value) {
  return std::all_of(elements.begin() + static_cast<std::ptrdiff_t>(start),
                     elements.begin() + static_cast<std::ptrdiff_t>(start + length),
                     [&](double element) { return element == value; });
}

static bool any_row(const RealTensor& elements, size_t columns, size_t offset, size_t length, double value) {
  for (size_t row = 0; row < elements.size(); row += columns)
    if (run_of(elements, row + offset, length, value)) return true;
  return false;
}

static void there_are_eight(void**) {
  assert_int_equal(hostile_classes().size(), 8);
  for (const HostileClass& cls : hostile_classes()) assert_ptr_equal(find_hostile_class(cls.name), &cls);
  assert_null(find_hostile_class("friendly"));
}

// Bytes that a change of the generators changes: certificates name class and seed.
static void bytes_are_the_same_everywhere(void**) {
  std::string all;
  for (const HostileClass& cls : hostile_classes())
    for (DType dtype : kAllDTypes)
      for (uint64_t seed = 0; seed < 4; ++seed) all += hostile_buffer(dense(dtype, {5, 33}), 1, cls, seed);
  assert_text_equal(to_hex(hash128(all)), "526bceb3b1c5ec8d530d34378981c98e");
}

static void seeds_inputs_and_classes_differ(void**) {
  const TensorDesc desc = dense(DType::f32, {64, 64});
  const HostileClass *tiny = find_hostile_class("tiny"), *huge = find_hostile_class("huge");
  assert_true(hostile_buffer(desc, 0, *tiny, 1) == hostile_buffer(desc, 0, *tiny, 1));
  assert_false(hostile_buffer(desc, 0, *tiny, 1) == hostile_buffer(desc, 0, *tiny, 2));
  assert_false(hostile_buffer(desc, 0, *tiny, 1) == hostile_buffer(desc, 1, *tiny, 1));
  assert_false(hostile_buffer(desc, 0, *tiny, 1) == hostile_buffer(desc, 0, *huge, 1));
}

// Every tile width that kernels use is wholly masked in some draw and not in others; so are halves, quarters
// and rows.
static void masks_cover_tiles_splits_and_rows(void**) {
  const Ints shape = {6, 256};
  for (DType dtype : kFloats)
    for (size_t width : {8, 16, 32, 64, 128, 256})
      for (size_t offset = 0; offset < 256; offset += width) {
        const int seeds = count("masked", dtype, shape, [&](const RealTensor& x) {
          return any_row(x, 256, offset, width, -INFINITY);
        });
        assert_in_range(seeds, 4, kSeeds - 4);
      }
  // The same along the first dimension.
  const int tiles = count("masked", DType::f16, {256, 6}, [](const RealTensor& x) {
    return run_of(x, 0, 64 * 6, -INFINITY) || run_of(x, 128 * 6, 64 * 6, -INFINITY);
  });
  assert_in_range(tiles, 2, kSeeds - 4);
  // Single elements between others that are not masked.
  assert_true(count("masked", DType::f32, shape, [](const RealTensor& x) {
                for (size_t i = 1; i + 1 < x.size(); ++i)
                  if (x[i] == -INFINITY && x[i - 1] != -INFINITY && x[i + 1] != -INFINITY) return true;
                return false;
              }) > 4);
}

static void masked_holds_minus_infinity_and_friendly_numbers(void**) {
  for (DType dtype : kFloats) {
    const auto right = [](const RealTensor& x) {
      return std::all_of(x.begin(), x.end(), [](double v) { return v == -INFINITY || std::fabs(v) <= 1; });
    };
    assert_int_equal(count("masked", dtype, {4, 96}, right), kSeeds);
    assert_true(count("masked", dtype, {4, 96}, [](const RealTensor& x) {
                  return !run_of(x, 0, x.size(), -INFINITY);
                }) >= static_cast<int>(kSeeds) - 4);
  }
}

static void lowest_is_finite(void**) {
  for (DType dtype : kFloats) {
    const double lowest = -largest_finite(dtype), large = round_to(dtype, dtype == DType::f16 ? -1e4 : -1e30);
    int of_dtype = 0, written = 0;
    const auto right = [&](const RealTensor& x) {
      of_dtype += any_row(x, 96, 0, 8, lowest);
      written += any_row(x, 96, 0, 8, large);
      return std::all_of(x.begin(), x.end(),
                         [&](double v) { return v == lowest || v == large || std::fabs(v) <= 1; });
    };
    assert_int_equal(count("lowest", dtype, {4, 96}, right), kSeeds);
    assert_true(of_dtype >= 4 && written >= 4);
  }
}

static void special_is_sprinkled(void**) {
  for (DType dtype : kFloats) {
    int nan = 0, positive = 0, negative = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const RealTensor x = draw("special", dtype, {16, 64}, seed);
      size_t special = 0;
      for (double v : x) special += !std::isfinite(v);
      assert_in_range(special, 1, 8);  // half of the rows at most
      for (double v : x) nan += std::isnan(v), positive += v == INFINITY, negative += v == -INFINITY;
    }
    assert_true(nan > 4 && positive > 4 && negative > 4);
  }
}

// Sums of products reach 1e4 and stay in the range of f16.
static void logits_are_of_some_ten_thousand(void**) {
  int draws = 0;
  for (size_t inner : {64, 1024})
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Ints shape = {32, static_cast<int64_t>(inner)};
      const RealTensor q = draw("logits", DType::f16, shape, seed);
      const RealTensor k = draw("logits", DType::f16, shape, seed + 1000);
      double top = 0, scale = 0;
      for (size_t i = 0; i < q.size(); ++i) scale = std::max({scale, std::fabs(q[i]), std::fabs(k[i])});
      if (scale > 1000) continue;  // inputs that are scores themselves
      for (size_t row = 0; row < 32; ++row)
        for (size_t column = 0; column < 32; ++column) {
          double sum = 0;
          for (size_t i = 0; i < inner; ++i) sum += q[row * inner + i] * k[column * inner + i];
          top = std::max(top, std::fabs(sum));
        }
      assert_true(top > 3e3 && top < 6e4);
      ++draws;
    }
  assert_true(draws > 20);
  assert_true(count("logits", DType::bf16, {4, 64},
                    [](const RealTensor& x) { return *std::max_element(x.begin(), x.end()) > 5e3; }) >= 4);
}

static void offset_is_far_from_zero(void**) {
  for (DType dtype : kFloats) {
    const double promised = dtype == DType::f32 ? 1e5 : dtype == DType::f16 ? 500 : 60;
    int far = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const RealTensor x = draw("offset", dtype, {4, 256}, seed);
      for (size_t row = 0; row < 4; ++row) {
        double mean = 0, deviation = 0;
        std::vector<double> distinct(x.begin() + static_cast<std::ptrdiff_t>(row * 256),
                                     x.begin() + static_cast<std::ptrdiff_t>(row * 256 + 256));
        for (double v : distinct) mean += v / 256;
        for (double v : distinct) deviation = std::max(deviation, std::fabs(v - mean));
        std::sort(distinct.begin(), distinct.end());
        distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
        assert_true(distinct.size() >= 3);  // the deviation is still there
        assert_true(std::fabs(mean) < 3 * promised * deviation);
        far += std::fabs(mean) > 0.3 * promised * deviation;
      }
    }
    assert_true(far > static_cast<int>(kSeeds) * 2);
  }
}

static void constant_rows_are_constant(void**) {
  for (DType dtype : kFloats) {
    int zero_rows = 0, along_rows = 0, along_columns = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const RealTensor x = draw("constant", dtype, {8, 64}, seed);
      bool rows = true, columns = true;
      for (size_t row = 0; row < 8; ++row)
        for (size_t column = 0; column < 64; ++column) {
          rows = rows && x[row * 64 + column] == x[row * 64];
          columns = columns && x[row * 64 + column] == x[column];
        }
      assert_true(rows || columns);
      along_rows += rows, along_columns += columns;
      zero_rows += any_row(x, 64, 0, 64, 0);
    }
    assert_true(zero_rows > 8 && along_rows > 8 && along_columns > 8);
  }
}

static void tiny_is_tiny(void**) {
  for (DType dtype : kFloats) {
    const double normal = dtype == DType::f16 ? 0x1p-14 : 0x1p-126;
    int subnormal = 0, thousandths = 0;
    const auto right = [&](const RealTensor& x) {
      for (double v : x) subnormal += v != 0 && std::fabs(v)<normal, thousandths += std::fabs(v)> 1e-4;
      return std::all_of(x.begin(), x.end(), [](double v) { return std::fabs(v) <= 1.01e-3; });
    };
    assert_int_equal(count("tiny", dtype, {8, 64}, right), kSeeds);
    assert_true(subnormal > 1000 && thousandths > 1000);
  }
}

static void huge_is_finite(void**) {
  for (DType dtype : kFloats) {
    const double largest = largest_finite(dtype);
    int few = 0, all = 0;
    const auto right = [&](const RealTensor& x) {
      size_t large = 0;
      for (double v : x) large += std::fabs(v) > largest / 100;
      few += large > 0 && large < x.size() / 10;
      all += large > x.size() / 2;
      return std::all_of(x.begin(), x.end(), [](double v) { return std::isfinite(v); });
    };
    assert_int_equal(count("huge", dtype, {16, 256}, right), kSeeds);
    assert_true(few >= 4 && all >= 4);
  }
}

static void integers_wrap_around_and_truth_values_are_both(void**) {
  for (const HostileClass& cls : hostile_classes()) {
    int low = 0, high = 0, small = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      for (double v : draw(cls.name, DType::i32, {8, 64}, seed))
        low += v == INT32_MIN, high += v == INT32_MAX, small += std::fabs(v) <= 8;
      const RealTensor truth = draw(cls.name, DType::boolean, {2, 1}, seed);
      assert_true(truth[0] != truth[1]);
    }
    assert_true(low > 100 && high > 100 && small > 8 * 64 * static_cast<int>(kSeeds) / 2);
    const int rows = count(cls.name, DType::boolean, {8, 64},
                           [](const RealTensor& x) { return any_row(x, 64, 0, 64, 0); });
    assert_in_range(rows, 4, kSeeds - 4);
  }
}

static void places_are_shared_and_gaps_are_nan(void**) {
  for (const HostileClass& cls : hostile_classes()) {
    const TensorDesc repeated{"x", DType::f16, {3, 40}, {0, 1}};
    const std::string buffer = hostile_buffer(repeated, 0, cls, 3);
    assert_int_equal(buffer.size(), 40 * 2);
    const TensorDesc padded{"x", DType::f32, {3, 4}, {6, 1}};
    const std::string rows = hostile_buffer(padded, 0, cls, 3);
    assert_int_equal(rows.size(), 16 * 4);
    assert_true(std::isnan(load_element(rows.data(), DType::f32, 4)));
    assert_true(hostile_buffer(dense(DType::bf16, {0, 8}), 0, cls, 1).empty());
    assert_int_equal(hostile_buffer(dense(DType::bf16, {}), 0, cls, 1).size(), 2);
  }
}

// In attention the mask is masked, and queries, keys and values only now and then; a graph that has a bool
// mask keeps its floats friendly half of the time.
static void the_input_that_is_added_is_masked(void**) {
  const auto graph = parse_graph(
      "graph g\nin q: f16[16, 8]\nin k: f16[8, 64]\nin v: f16[64, 8]\nin m: f16[16, 64]\n"
      "s = matmul(q, k)\na = add(s, m)\np = softmax(a)\no = matmul(p, v)\nout o\n");
  const auto boolean = parse_graph(
      "graph g\nin m: bool[16, 64]\nin s: f16[16, 64]\na = where(m, s, -inf)\np = softmax(a)\nout p\n");
  assert_ok(graph);
  assert_ok(boolean);
  const auto infinite = [](const Graph& of, size_t input, uint64_t seed) {
    const TensorDesc desc = of.input_descs()[input];
    const auto buffers = hostile_inputs(of, *find_hostile_class("masked"), seed);
    const RealTensor x = read_buffer(desc, buffers[input].data());
    return std::any_of(x.begin(), x.end(), [](double v) { return std::isinf(v); });
  };
  int mask = 0, others = 0, scores = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const int own = infinite(*graph, 0, seed) + infinite(*graph, 1, seed) + infinite(*graph, 2, seed);
    mask += infinite(*graph, 3, seed);
    others += own;
    assert_in_range(own + infinite(*graph, 3, seed), 0, 1);
    scores += infinite(*boolean, 1, seed);
  }
  assert_in_range(mask, kSeeds / 2, kSeeds - 2);
  assert_in_range(others, 1, kSeeds / 3);
  assert_in_range(scores, kSeeds / 4, 3 * kSeeds / 4);
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(there_are_eight),
      cmocka_unit_test(bytes_are_the_same_everywhere),
      cmocka_unit_test(seeds_inputs_and_classes_differ),
      cmocka_unit_test(masks_cover_tiles_splits_and_rows),
      cmocka_unit_test(masked_holds_minus_infinity_and_friendly_numbers),
      cmocka_unit_test(lowest_is_finite),
      cmocka_unit_test(special_is_sprinkled),
      cmocka_unit_test(logits_are_of_some_ten_thousand),
      cmocka_unit_test(offset_is_far_from_zero),
      cmocka_unit_test(constant_rows_are_constant),
      cmocka_unit_test(tiny_is_tiny),
      cmocka_unit_test(huge_is_finite),
      cmocka_unit_test(integers_wrap_around_and_truth_values_are_both),
      cmocka_unit_test(places_are_shared_and_gaps_are_nan),
      cmocka_unit_test(the_input_that_is_added_is_masked),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
