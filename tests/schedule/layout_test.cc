// The operations on layouts: identities that must hold for all small layouts, and the text form.
#include "core/schedule/layout.h"

#include "core/schedule/bit_terms.h"
#include "core/schedule/layout_text.h"
#include "tests/schedule/layout_samples.h"
#include "tests/support/test.h"

using namespace quern;

// Every layout in[4] -> out[4].
static std::vector<Layout> all_small(std::string_view in, std::string_view out) {
  std::vector<Layout> result;
  for (uint64_t code = 0; code < 16; ++code)
    result.push_back(Layout({{std::string(in), 2}}, {{std::string(out), 2}}, {2, {code & 3, code >> 2}}));
  return result;
}

static bool is_identity(const Layout& layout) { return layout.matrix() == f2_identity(layout.input_bits()); }

static void composition_and_product_mean_what_they_say(void**) {
  for (const Layout& a : all_small("a", "x"))
    for (const Layout& b : all_small("x", "y")) {
      const Layout both = a.then(b);
      for (uint64_t i = 0; i < 4; ++i) assert_int_equal(both.apply(i), b.apply(a.apply(i)));
    }
  for (const Layout& low : all_small("a", "x"))
    for (const Layout& high : all_small("a", "x")) {
      const Layout product = low * high;
      for (uint64_t i = 0; i < 16; ++i)
        assert_int_equal(product.apply(i), low.apply(i & 3) | high.apply(i >> 2) << 2);
    }
}

static void inverses_invert(void**) {
  std::mt19937_64 random(6);
  int bijections = 0;
  for (int i = 0; i < 2000; ++i) {
    const Layout layout = random_layout(random, random() % 4, 2, 1, random() % 3, random() % 4);
    assert_int_equal(layout.inverse().has_value(), layout.is_surjective() && layout.is_injective());
    if (auto inverse = layout.inverse())
      assert_true(is_identity(layout.then(*inverse)) && is_identity(inverse->then(layout)) && ++bijections);
  }
  assert_true(bijections > 50);
}

static void all_bijections_of_three_bits(void**) {
  int bijections = 0;
  for (uint64_t code = 0; code < 512; ++code) {
    const Layout layout({{"a", 3}}, {{"x", 3}}, {3, {code & 7, code >> 3 & 7, code >> 6}});
    if (auto inverse = layout.inverse()) {
      ++bijections;
      for (uint64_t i = 0; i < 8; ++i) assert_int_equal(inverse->apply(layout.apply(i)), i);
    }
  }
  assert_int_equal(bijections, 7 * 6 * 4);
}

static void dimensions_move_and_the_map_stays(void**) {
  std::mt19937_64 random(7);
  const Layout layout = random_layout(random, 2, 3, 1, 2, 3);
  const std::string_view inputs[] = {kWarp, kRegister, kLane}, outputs[] = {"n", "m"};
  const Layout moved = layout.reordered(inputs, outputs);
  for (uint64_t r = 0; r < 4; ++r)
    for (uint64_t l = 0; l < 8; ++l)
      for (uint64_t w = 0; w < 2; ++w) {
        const std::vector<uint64_t> mn = layout.apply(std::vector{r, l, w}),
                                    nm = moved.apply(std::vector{w, r, l});
        assert_int_equal(mn[0], nm[1]);
        assert_int_equal(mn[1], nm[0]);
        assert_int_equal(layout.without_output("m").apply(std::vector{r, l, w})[0], mn[1]);
        assert_int_equal(layout.wrapped("m", 1).apply(std::vector{r, l, w})[0], mn[0] & 1);
        assert_int_equal(layout.wrapped("m", 1).apply(std::vector{r, l, w})[1], mn[1]);
        if (l == 0) assert_true(layout.without_input(kLane).apply(std::vector{r, w}) == mn);
        if (l % 2 == 0) {
          const int kept[] = {2, 1};
          const uint64_t swapped = (l >> 2 & 1) | (l & 2);
          assert_true(layout.with_input_bits(kLane, kept).apply(std::vector{r, swapped, w}) == mn);
        }
        const Layout flat = layout.reshaped({{"i", 6}}, {{"o", 5}});
        assert_int_equal(flat.apply(r | l << 2 | w << 5), mn[0] | mn[1] << 2);
      }
  assert_false(layout.without_output("m").has_output("m"));
}

static void copies_are_found(void**) {
  const Layout layout({{"register", 4}}, {{"m", 3}}, {3, {0, 1, 1, 2}});
  assert_true(layout.independent_bits(kRegister) == (std::vector<int>{1, 3}));
}

static void text_round_trips(void**) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 200; ++i) {
    const Layout layout = random_layout(random, i % 4, i % 3, i % 2, i % 5, i % 3);
    const Result<Layout> parsed = parse_layout(print_layout(layout));
    assert_ok(parsed);
    assert_true(*parsed == layout);
  }
  for (const Layout& layout : {Layout(), Layout::zeros("a", 2), Layout({}, {{"x", 3}}, {3, {}})})
    assert_true(parse_layout(print_layout(layout)).value() == layout);
  const Layout tile =
      Layout::identity(kRegister, "n", 1) * Layout::identity(kLane, "n", 1) * Layout::identity(kLane, "m", 1);
  assert_text_equal(print_layout(tile),
                    "register[2], lane[4] -> n[4], m[2]\nregister: (1, 0)\nlane: (2, 0) (0, 1)\n");
}

static void bad_text_is_refused_with_its_line(void**) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "empty"},
      {"a[3] -> x[2]\na: (1) (0)\n", "line 1: expected a size that is a power of two"},
      {"a[0] -> x[2]\na:\n", "power of two"},
      {"a[2], a[2] -> x[2]\na: (1)\na: (1)\n", "a name not used yet"},
      {"a[2] x[2]\na: (1)\n", "expected '->'"},
      {"a[2] -> x[2]\n", "one line for each"},
      {"a[2] -> x[2]\nb: (1)\n", "line 2: expected 'a'"},
      {"a[2] -> x[2]\na: (2)\n", "within its size"},
      {"a[2] -> x[2]\na: (1) (1)\n", "end of the line"},
      {"a[4] -> x[2]\na: (1)\n", "expected '('"},
      {"a[2] -> x[2], y[2]\na: (1)\n", "expected ','"},
      {"a[9223372036854775808], b[2] -> x[2]\na: (1)\n", "63 bits"},
      {"a[99999999999999999999] -> x[2]\na: (1)\n", "a number"},
  };
  for (auto [text, why] : bad) assert_error(parse_layout(text), ErrorCode::INVALID_ARGUMENT, why);
}

static void bit_terms_compute_the_layout(void**) {
  std::mt19937_64 random(9);
  std::vector<Layout> layouts;
  for (const LayoutSample& sample : register_samples(64, 32, 2)) layouts.push_back(sample.layout);
  for (int i = 0; i < 20; ++i) layouts.push_back(random_layout(random, 2, 5, 2, 4, 5));
  for (const Layout& layout : layouts) {
    const Layout threads = join_threads(layout);
    for (std::string_view output : {"m", "n"}) {
      const BitTerms terms = bit_terms(threads, output);
      uint64_t reach = 0;
      for (uint64_t r = 0; r >> layout.input_bits(kRegister) == 0; ++r)
        for (uint64_t t = 0; t >> threads.input_bits(kThread) == 0; ++t) {
          const uint64_t value =
              layout.coordinate(layout.apply(layout.flat_input(std::vector{r, t & 31, t >> 5})), output);
          assert_int_equal(evaluate(terms, {r, t}), value);
          reach |= value;
          if (terms.disjoint) {
            uint64_t sum = 0;
            for (const BitTerm& term : terms.terms) sum += evaluate({{term}}, {r, t});
            assert_int_equal(sum, value);
          }
        }
      assert_int_equal(reach, terms.reach);
    }
  }
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(composition_and_product_mean_what_they_say),
                              cmocka_unit_test(inverses_invert),
                              cmocka_unit_test(all_bijections_of_three_bits),
                              cmocka_unit_test(dimensions_move_and_the_map_stays),
                              cmocka_unit_test(copies_are_found),
                              cmocka_unit_test(text_round_trips),
                              cmocka_unit_test(bad_text_is_refused_with_its_line),
                              cmocka_unit_test(bit_terms_compute_the_layout)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
