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

static void layouts_print(void**) {
  const Layout tile =
      Layout::identity(kRegister, "n", 1) * Layout::identity(kLane, "n", 1) * Layout::identity(kLane, "m", 1);
  assert_text_equal(print_layout(tile),
                    "register[2], lane[4] -> n[4], m[2]\nregister: (1, 0)\nlane: (2, 0) (0, 1)\n");
  assert_text_equal(print_layout(Layout({}, {{"x", 3}}, {3, {}})), "-> x[8]\n");
}

static uint64_t value_of(const BitTerm& term, const std::vector<uint64_t>& inputs) {
  const uint64_t bits = inputs.at(static_cast<size_t>(term.input)) & term.mask;
  return term.shift >= 0 ? bits << term.shift : bits >> -term.shift;
}

static void bit_terms_compute_the_layout(void**) {
  std::mt19937_64 random(9);
  std::vector<Layout> layouts;
  for (const LayoutSample& sample : register_samples(64, 32, 2)) layouts.push_back(sample.layout);
  for (int i = 0; i < 20; ++i) layouts.push_back(random_layout(random, 2, 5, 2, 4, 5));
  for (const Layout& layout : layouts) {
    for (std::string_view output : {"m", "n"}) {
      const BitTerms terms = bit_terms(layout, output);
      uint64_t reach = 0;
      for (uint64_t r = 0; r >> layout.input_bits(kRegister) == 0; ++r)
        for (uint64_t t = 0; t >> (5 + layout.input_bits(kWarp)) == 0; ++t) {
          const std::vector<uint64_t> point = {r, t & 31, t >> 5};
          const uint64_t value = layout.coordinate(layout.apply(layout.flat_input(point)), output);
          uint64_t both = 0, sum = 0;
          for (const BitTerm& term : terms.terms) {
            both ^= value_of(term, point);
            sum += value_of(term, point);
          }
          assert_int_equal(both, value);
          if (terms.disjoint) assert_int_equal(sum, value);
          reach |= value;
        }
      assert_int_equal(reach, terms.reach);
    }
  }
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(composition_and_product_mean_what_they_say),
                              cmocka_unit_test(dimensions_move_and_the_map_stays),
                              cmocka_unit_test(copies_are_found), cmocka_unit_test(layouts_print),
                              cmocka_unit_test(bit_terms_compute_the_layout)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
