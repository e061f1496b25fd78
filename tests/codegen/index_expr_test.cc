// Index expressions against plain arithmetic: every simplification must keep every value, and the ones that
// kernels rely on must happen.
#include "core/codegen/index_expr.h"

#include <random>

#include "core/base/plan.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

int64_t evaluate(const IndexSpace& space, const Index& index, const std::vector<int64_t>& values) {
  int64_t sum = index.constant;
  for (const Index::Term& term : index.terms) {
    const Atom& atom = space.atom(term.atom);
    int64_t value = 0;
    if (atom.kind == Atom::Kind::variable) {
      value = values[static_cast<size_t>(std::stoi(atom.name))];
    } else {
      const int64_t argument = evaluate(space, atom.argument, values);
      assert_true(argument >= 0);
      value = atom.kind == Atom::Kind::quotient ? argument / atom.divisor : argument % atom.divisor;
    }
    assert_true(value >= 0 && value <= atom.largest);
    sum += term.factor * value;
  }
  return sum;
}

// An expression, and its value at every point by plain arithmetic.
struct Sample {
  Index index;
  std::vector<int64_t> values;
};

void simplification_keeps_values(void**) {
  std::mt19937_64 random(1);
  const std::vector<int64_t> numbers = {1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 24, 30, 60};
  for (int round = 0; round < 300; ++round) {
    IndexSpace space;
    const std::vector<int64_t> extents = {int64_t(1 + random() % 6), int64_t(1 + random() % 8),
                                          int64_t(1 + random() % 5)};
    std::vector<std::vector<int64_t>> points;
    for (int64_t a = 0; a < extents[0]; ++a)
      for (int64_t b = 0; b < extents[1]; ++b)
        for (int64_t c = 0; c < extents[2]; ++c) points.push_back({a, b, c});
    std::vector<Sample> samples;
    for (int i = 0; i < 3; ++i) {
      samples.push_back({space.variable(std::to_string(i), extents[static_cast<size_t>(i)]), {}});
      for (const auto& point : points) samples.back().values.push_back(point[static_cast<size_t>(i)]);
    }
    for (int step = 0; step < 14; ++step) {
      const Sample &a = samples[random() % samples.size()], &b = samples[random() % samples.size()];
      const int64_t number = numbers[random() % numbers.size()];
      const int kind = static_cast<int>(random() % 4);
      Sample next;
      next.index = kind == 0   ? space.add(a.index, space.scale(b.index, number))
                   : kind == 1 ? space.divide(a.index, number)
                   : kind == 2 ? space.remainder(a.index, number)
                               : space.add(a.index, number);
      for (size_t p = 0; p < points.size(); ++p) {
        const int64_t x = a.values[p], y = b.values[p];
        next.values.push_back(kind == 0   ? x + y * number
                              : kind == 1 ? x / number
                              : kind == 2 ? x % number
                                          : x + number);
        assert_int_equal(evaluate(space, next.index, points[p]), next.values.back());
        assert_true(space.smallest(next.index) <= next.values.back() &&
                    next.values.back() <= space.largest(next.index));
      }
      samples.push_back(std::move(next));
    }
  }
}

// floor division of what may be negative under a guard that is false: quotients keep arguments that are not
// negative.
void negative_indices_divide_downwards(void**) {
  IndexSpace space;
  const Index i = space.variable("0", 12), shifted = space.add(i, -5);
  const Index quotient = space.divide(shifted, 4), rest = space.remainder(shifted, 4);
  for (int64_t value = 0; value < 12; ++value) {
    const int64_t x = value - 5, down = (x - ((x % 4) + 4) % 4) / 4;
    assert_int_equal(evaluate(space, quotient, {value}), down);
    assert_int_equal(evaluate(space, rest, {value}), x - 4 * down);
  }
}

void coordinates_and_positions_cancel(void**) {
  IndexSpace space;
  const std::vector<int64_t> shape = {3, 1, 5, 7, 4};
  const Index i = space.variable("0", 420);
  const Coords coords = space.unflatten(shape, i);
  assert_true(space.flatten(shape, coords) == i);
  // As reshapes of any depth do.
  Index position = i;
  for (const std::vector<int64_t>& other : {std::vector<int64_t>{12, 35}, {2, 6, 35}, {420}, {4, 105}})
    position = space.flatten(other, space.unflatten(other, position));
  assert_true(position == i);
}

void split_variables_keep_their_vector(void**) {
  IndexSpace space;
  const Index t = space.variable("0", 1000), v = space.variable("1", 8);
  const Index element = space.add(space.scale(t, 8), v);
  assert_true(space.splits(element, v, 8));
  assert_true(space.splits(space.remainder(element, 64), v, 8));  // a bias along the last dimension
  assert_true((space.uses(space.divide(element, 64)) & space.uses(v)) == 0);
  assert_false(space.splits(space.remainder(element, 20), v, 8));
  assert_false(space.splits(space.scale(element, 2), v, 8));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(simplification_keeps_values),
                              cmocka_unit_test(negative_indices_divide_downwards),
                              cmocka_unit_test(coordinates_and_positions_cancel),
                              cmocka_unit_test(split_variables_keep_their_vector)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
