// The ordered domain: order and IEEE specials are those of real numbers, equality is that of the field, and
// what rounding leaves open is unknown.
#include "core/verify/ordered.h"

#include <cmath>

#include "core/verify/trial_inputs.h"
#include "tests/support/test.h"

using namespace quern;

namespace {

constexpr double kInfinity = HUGE_VAL;
const double kNaN = std::nan("");

struct Trial {
  OrderedDomain domain{5};
  OrderedValue operator()(double value, DType dtype = DType::f32) { return domain.input(value, dtype); }
  OrderedValue apply(OpCode code, OrderedValue a, OrderedValue b = {}, OrderedValue c = {},
                     DType compute = DType::f32) {
    const OrderedValue operands[] = {a, b, c};
    return domain.apply(code, compute, operands);
  }
};

bool is(const OrderedValue& value, double real) {
  return !value.open && (std::isnan(real) ? std::isnan(value.real) : value.real == real);
}

void order_is_that_of_real_numbers(void**) {
  Trial t;
  assert_true(is(t.apply(OpCode::max, t(1), t(-2)), 1) && is(t.apply(OpCode::min, t(1), t(-2)), -2));
  assert_true(is(t.apply(OpCode::relu, t(-3)), 0) && is(t.apply(OpCode::abs, t(-3)), 3));
  assert_true(is(t.apply(OpCode::lt, t(1), t(1)), 0) && is(t.apply(OpCode::le, t(1), t(1)), 1));
  assert_true(is(t.apply(OpCode::eq, t(0.5), t(0.5)), 1) && is(t.apply(OpCode::eq, t(0.5), t(0.25)), 0));
  assert_true(is(t.apply(OpCode::where, t(1, DType::boolean), t(7), t(kNaN)), 7));
  assert_true(is(t.domain.cast(t(-2.75), DType::f32, DType::i32), -2));
  assert_true(is(t.domain.cast(t(1 + 0x1p-12), DType::f32, DType::f16), 1));
  assert_true(is(t.domain.cast(t(kNaN), DType::f32, DType::boolean), 1));
  assert_true(is(t.domain.cast(t(kNaN), DType::f32, DType::i32), 0));
  assert_true(is(t.domain.cast(t(-kInfinity), DType::f32, DType::i32), INT32_MIN));
}

void specials_are_those_of_ieee(void**) {
  Trial t;
  for (OpCode code : {OpCode::max, OpCode::min, OpCode::add}) {
    assert_true(is(t.apply(code, t(kNaN), t(1)), kNaN));
    assert_true(is(t.apply(code, t(1), t(kNaN)), kNaN));
  }
  assert_true(is(t.apply(OpCode::relu, t(kNaN)), kNaN) && is(t.apply(OpCode::lt, t(kNaN), t(1)), 0));
  assert_true(is(t.apply(OpCode::sub, t(kInfinity), t(kInfinity)), kNaN));
  assert_true(is(t.apply(OpCode::mul, t(kInfinity), t(0)), kNaN));
  assert_true(is(t.apply(OpCode::div, t(3), t(-kInfinity)), 0));
  assert_true(is(t.apply(OpCode::div, t(0), t(0)), kNaN));
  const OrderedValue none = t.apply(OpCode::exp, t(-kInfinity));
  assert_true(is(none, 0) && none.field.p == 0);
  assert_true(is(t.apply(OpCode::log, t(0)), -kInfinity) && is(t.apply(OpCode::sqrt, t(-1)), kNaN));
  assert_true(is(t.domain.frame(t(-kInfinity)), 0) && is(t.domain.frame(t(-1e30)), -1e30));
  // A division by zero gives an infinity of a sign that is not specified.
  const OrderedValue infinite = t.apply(OpCode::div, t(1), t(0));
  assert_true(infinite.open && std::isinf(infinite.real));
  assert_true(t.apply(OpCode::exp, infinite).is_unknown());
  assert_true(is(t.apply(OpCode::div, t(1), infinite), 0) && is(t.apply(OpCode::abs, infinite), kInfinity));
}

void integers_wrap(void**) {
  Trial t;
  const DType i = DType::i32;
  assert_true(is(t.domain.add(t(INT32_MAX, i), t(1, i), i), INT32_MIN));
  assert_true(is(t.domain.multiply(t(65536, i), t(65537, i), i), 65536));
  assert_true(t.domain.multiply(t(65536, i), t(65537, i), i).field == FieldDomain::integer(65536));
  assert_true(is(t.apply(OpCode::lt, t(INT32_MIN, i), t(INT32_MAX, i), {}, i), 1));
}

// Values that rounding keeps from being told apart are equal if the field says so, and else unknown.
void ties_within_rounding(void**) {
  Trial t;
  const OrderedValue x = t(0.3), y = t(0.7), third = t.apply(OpCode::div, x, t(3));
  const OrderedValue back = t.apply(OpCode::mul, third, t(3));
  assert_true(is(t.apply(OpCode::eq, back, x), 1) && is(t.apply(OpCode::lt, back, x), 0));
  assert_true(t.apply(OpCode::sub, back, x).is_zero());
  const OrderedValue root = t.apply(OpCode::sqrt, t.apply(OpCode::square, x));
  assert_true(t.apply(OpCode::eq, root, x).is_unknown());  // true, but no law of the field
  assert_true(t.apply(OpCode::max, root, x).is_unknown());
  assert_true(is(t.apply(OpCode::lt, root, y), 1));
  assert_true(agreement(x, root, false) == Agreement::by_field);
  assert_true(agreement(x, back, false) == Agreement::equal);
  assert_true(agreement(x, y, false) == Agreement::different);
  // Every bound holds: both ways of calculating have the same value.
  const OrderedValue product = t.apply(OpCode::mul, t.apply(OpCode::exp, x), t.apply(OpCode::exp, y));
  assert_true(agreement(t.apply(OpCode::exp, t.apply(OpCode::add, x, y)), product, false) ==
              Agreement::equal);
}

// A number that is equal to another modulo p is not equal to it.
void numbers_modulo_p_differ(void**) {
  Trial t;
  const double p = t.domain.primes().p.value();
  assert_true(t(3).field == t(3 + p).field || t(3).field.p == t(3 + p).field.p);
  assert_true(agreement(t(3), t(3 + p), false) == Agreement::different);
}

void specials_agree_with_their_like(void**) {
  Trial t;
  for (bool special : {false, true}) {
    assert_true(agreement(t(kNaN), t(kNaN), special) == Agreement::equal);
    assert_true(agreement(t(kInfinity), t(-kInfinity), special) == Agreement::different);
    assert_true(agreement(t(kNaN), t(0), special) == Agreement::different);
    assert_true(agreement(t(1), t(kInfinity), special) == Agreement::different);
    assert_true(agreement(t(kInfinity), t(kNaN), special) ==
                (special ? Agreement::equal : Agreement::different));
  }
}

// Every kind of inputs is what it says: conditions come out both ways, ties and zeros happen.
void inputs_are_of_their_kind(void**) {
  Graph graph;
  for (DType dtype : {DType::f32, DType::f32, DType::boolean, DType::i32}) {
    Node node;
    node.type = {dtype, {8, 8}};
    graph.inputs.push_back(static_cast<ValueId>(graph.nodes.size()));
    graph.nodes.push_back(node);
  }
  int seen = 0, zeros = 0, trues = 0, falses = 0, below = 0, above = 0, lowest = 0, specials = 0, wide = 0;
  for (int n = 0; n < 2 * kAllKinds; ++n) {
    OrderedDomain domain(static_cast<uint64_t>(n));
    const auto inputs = trial_inputs(graph, std::vector<bool>(graph.inputs.size(), true), n,
                                     static_cast<uint64_t>(n), {100}, domain);
    seen |= 1 << static_cast<int>(trial_kind(n));
    for (size_t e = 0; e < 64; ++e) {
      const double a = inputs[0][e].real, b = inputs[1][e].real, i = inputs[3][e].real;
      zeros += a == 0 && a == b;
      ++(inputs[2][e].real != 0 ? trues : falses);
      below += a<b, above += a> b;
      lowest += a == -kInfinity;
      specials += std::isnan(a) || std::isinf(b);
      wide += std::fabs(i) > 1e9;
      if (std::isfinite(a)) assert_true(inputs[0][e].field == domain.number(a, DType::f32).field);
    }
  }
  assert_int_equal(seen, 127);
  for (int count : {zeros, trues, falses, below, above, lowest, specials, wide}) assert_true(count > 0);
}

// Of two finite scores among masked ones which is the larger matters, and nothing else in the row does.
void some_masked_rows_have_two_scores(void**) {
  Graph graph;
  for (DType dtype : {DType::f32, DType::boolean}) {
    Node node;
    node.code = OpCode::input;
    node.type = {dtype, {8, 32}};
    graph.inputs.push_back(static_cast<ValueId>(graph.nodes.size()));
    graph.nodes.push_back(node);
  }
  int masked = 0;
  while (trial_kind(masked) != TrialKind::masked) ++masked;
  int pairs[2] = {0, 0};
  for (uint64_t seed = 1; seed < 30; ++seed) {
    const auto inputs = trial_inputs(graph, {true, true}, masked, seed, {}, OrderedDomain(seed));
    for (size_t row = 0; row < 8; ++row)
      for (size_t i = 0; i < 2; ++i) {
        int seen = 0;
        for (size_t column = 0; column < 32; ++column) {
          const double value = inputs[i][row * 32 + column].real;
          seen += i == 0 ? std::isfinite(value) : value != 0;
        }
        pairs[i] += seen == 2;
      }
  }
  assert_true(pairs[0] > 8 && pairs[1] > 8);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(order_is_that_of_real_numbers),
      cmocka_unit_test(specials_are_those_of_ieee),
      cmocka_unit_test(integers_wrap),
      cmocka_unit_test(ties_within_rounding),
      cmocka_unit_test(numbers_modulo_p_differ),
      cmocka_unit_test(specials_agree_with_their_like),
      cmocka_unit_test(inputs_are_of_their_kind),
      cmocka_unit_test(some_masked_rows_have_two_scores),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
