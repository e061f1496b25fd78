// The field domain: the laws it must satisfy, and the differences it must see.
#include "core/verify/field.h"

#include <set>

#include "core/graph/decompose.h"
#include "core/graph/text.h"
#include "core/verify/evaluate.h"
#include "tests/support/test.h"

using namespace quern;

static void moduli_calculate(void**) {
  for (uint32_t m : {2u, 3u, 61u, 65537u, 2147483647u, 3800000001u, 4294967291u}) {
    const Modulus modulus(m);
    for (uint64_t seed = 0; seed < 1000; ++seed) {
      const uint64_t x = seed < 4 ? ~uint64_t{0} - seed : mix(seed), a = mix(x) % m, b = mix(a) % m;
      assert_int_equal(modulus.reduce(x), x % m);
      assert_int_equal(modulus.add(a, b), (a + b) % m);
      assert_int_equal(modulus.multiply(a, b), a * b % m);
      assert_int_equal(modulus.add(a, modulus.negate(a)), 0);
    }
  }
  const Modulus modulus(2147483647);
  for (double number : {0.0, 1.0, -1.0, 0.1, -1e-5, 1e30, 4294967296.0, 0x1p-1000})
    assert_int_equal(modulus.residue(number * 4), modulus.multiply(4, modulus.residue(number)));
  assert_int_equal(modulus.multiply(modulus.residue(0.75), 4), 3);
}

static void primes_are_prime(void**) {
  auto divides = [](uint32_t n) {
    for (uint64_t d = 2; d * d <= n; ++d)
      if (n % d == 0) return true;
    return false;
  };
  for (uint32_t n = 2; n < 5000; ++n) assert_true(is_prime(n) == !divides(n));
  // Strong pseudoprimes to base 2, to bases 2 and 7.
  for (uint32_t n : {2047u, 3277u, 4033u, 3215031751u}) assert_false(is_prime(n));
  std::set<uint32_t> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const FieldPrimes primes = draw_primes(seed);
    assert_int_equal(primes.p.value(), 2 * uint64_t{primes.q.value()} + 1);
    assert_true(primes.q.value() >= kLeastPrime);
    assert_false(divides(primes.p.value()) || divides(primes.q.value()));
    seen.insert(primes.q.value());
  }
  assert_true(seen.size() >= 19);
}

// However a maximum is folded, it is that of the set; and it is not that of any other set.
static void maxima_are_of_sets(void**) {
  for (size_t count : {1, 2, 3, 31, 32, 33, 70, 300}) {
    FieldDomain f(count);
    const DType t = DType::f32;
    auto fold = [&](uint64_t order, size_t left_out) {
      std::vector<FieldValue> parts;
      for (size_t i = 0; i < count; ++i)
        if (i != left_out) parts.push_back(f.random(0, i));
      if (!parts.empty()) parts.push_back(parts[mix(order) % parts.size()]);
      while (parts.size() > 1) {
        const size_t a = mix(order ^ parts.size()) % parts.size();
        const FieldValue one = parts[a];
        parts[a] = parts.back();
        parts.pop_back();
        FieldValue& other = parts[order == 0 ? 0 : mix(order + parts.size()) % parts.size()];
        other = order & 1 ? f.combine(OpCode::reduce_max, one, other, t) : f.combine(OpCode::reduce_max, other, one, t);
      }
      return parts.empty() ? f.identity(OpCode::reduce_max, t) : f.combine(OpCode::reduce_max, parts[0], f.identity(OpCode::reduce_max, t), t);
    };
    const FieldValue whole = fold(0, count);
    for (uint64_t order = 1; order < 8; ++order) assert_true(fold(order, count) == whole);
    for (size_t left_out = 0; left_out < count; ++left_out) assert_false(fold(left_out, left_out) == whole);
    if (count > 1) assert_false(f.choose(OpCode::min, whole, f.random(0, 0)) == whole);
  }
}

static void integers_are_exact(void**) {
  FieldDomain f(3);
  const DType i = DType::i32;
  auto integer = [](int32_t value) { return FieldDomain::integer(value); };
  assert_true(f.add(integer(INT32_MAX), integer(1), i) == integer(INT32_MIN));
  assert_true(f.multiply(integer(65536), integer(65537), i) == integer(65536));
  assert_true(f.combine(OpCode::reduce_max, integer(-1), integer(INT32_MIN), i) == integer(-1));
  assert_true(f.identity(OpCode::reduce_max, i) == integer(INT32_MIN));
  assert_true(f.convert(integer(-7), i, DType::f32) == f.number(-7, DType::f32));
  assert_true(f.convert(f.number(-7, DType::f32), DType::f32, i) == integer(-7));
  assert_true(f.cast(integer(-7), i, DType::boolean) == integer(1));
  const FieldValue operands[] = {integer(-1), integer(1), {}};
  assert_true(f.apply(OpCode::lt, i, operands) == integer(1));
  for (uint64_t e = 0; e < 64; ++e) assert_true(f.random(0, e, DType::boolean).p <= 1);
}

static void laws_hold(void**) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    FieldDomain f(seed);
    const FieldValue a = f.random(0, 0), b = f.random(0, 1), c = f.random(1, 0);
    const DType t = DType::f32;
    assert_true(f.multiply(f.exponential(a), f.exponential(b), t) == f.exponential(f.add(a, b, t)));
    assert_true(f.divide(f.exponential(a), f.exponential(b)) == f.exponential(f.add(a, f.negate(b), t)));
    assert_true(f.multiply(a, f.add(b, c, t), t) == f.add(f.multiply(a, b, t), f.multiply(a, c, t), t));
    assert_true(f.multiply(f.divide(a, b), b, t) == a);
    assert_true(f.add(a, f.negate(a), t) == f.zero(t));
    assert_true(f.number(0.75, t) == f.divide(f.number(3, t), f.number(4, t)));
    assert_true(f.multiply(f.number(1e-5, t), f.number(-1024, t), t) == f.number(-1024 * 1e-5, t));
    for (const OpInfo& op : all_ops()) {
      if (op.kind != OpKind::reduction) continue;
      auto both = [&](FieldValue x, FieldValue y) { return f.combine(op.code, x, y, t); };
      assert_true(both(a, b) == both(b, a) && both(both(a, b), c) == both(a, both(b, c)));
      assert_true(both(f.identity(op.code, t), a) == a && both(a, f.identity(op.code, t)) == a);
      if (op.laws & kOrdered) assert_true(both(a, a) == a && both(both(a, b), a) == both(a, b));
      if (op.laws & kLinear)
        assert_true(both(f.multiply(a, c, t), f.multiply(b, c, t)) == f.multiply(both(a, b), c, t));
    }
    assert_false(f.exponential(a) == f.exponential(b));
    assert_false(f.divided_by_zero());
  }
  FieldDomain f(1);
  f.divide(f.random(0, 0), f.zero(DType::f32));
  assert_true(f.divided_by_zero());
}

// Whether two programs over the same inputs agree in every element of their outputs, in one trial.
static bool agree(const std::string& a, const std::string& b, uint64_t seed = 1) {
  const std::string head =
      "graph g\nin x: f32[3, 4]\nin y: f32[3, 4]\nin w: f32[4, 2]\nin r: f32[3, 1]\nin i: i32[3, 4]\n";
  std::vector<Elements<FieldValue>> outputs;
  FieldDomain domain(seed);
  for (const std::string& body : {a, b}) {
    const Result<Graph> graph = parse_graph(head + body + "out z\n");
    assert_ok(graph);
    std::vector<Elements<FieldValue>> inputs;
    for (ValueId id : graph->inputs) {
      inputs.emplace_back();
      for (int64_t e = 0; e < graph->node(id).type.element_count(); ++e)
        inputs.back().push_back(domain.random(static_cast<uint64_t>(id), static_cast<uint64_t>(e),
                                              graph->node(id).type.dtype));
    }
    outputs.push_back(evaluate(decompose(*graph), domain, inputs)[0]);
  }
  assert_false(domain.divided_by_zero());
  return outputs[0] == outputs[1];
}

static void equal_programs_agree(void**) {
  const std::pair<const char*, const char*> pairs[] = {
      {"a = mul(x, r)\nz = matmul(a, w)\n", "a = matmul(x, w)\nz = mul(r, a)\n"},
      {"a = add(x, y)\nz = matmul(a, w)\n", "a = matmul(x, w)\nb = matmul(y, w)\nz = add(b, a)\n"},
      {"z = softmax(x)\n", "e = exp(x)\ns = sum(e, axis=1, keepdims=true)\nz = div(e, s)\n"},
      {"a = softmax(x)\nz = matmul(a, w)\n",
       "e = exp(x)\ns = sum(e, axis=1, keepdims=true)\nn = matmul(e, w)\nz = div(n, s)\n"},
      {"a = rms_norm(x)\nz = matmul(a, w)\n",
       "q = square(x)\nm = mean(q, axis=1, keepdims=true)\ne = add(m, 1e-5)\ns = sqrt(e)\nn = matmul(x, "
       "w)\nz = div(n, s)\n"},
      {"z = silu(x)\n", "s = sigmoid(x)\nz = mul(x, s)\n"},
      {"z = silu(x)\n", "e = exp(x)\nd = add(e, 1.0)\nn = mul(e, x)\nz = div(n, d)\n"},
      {"z = rsqrt(x)\n", "s = sqrt(x)\nz = reciprocal(s)\n"},
      {"z = max(x, y)\n", "z = max(y, x)\n"},
      {"a = exp(x)\nb = exp(y)\nz = mul(a, b)\n", "a = add(x, y)\nz = exp(a)\n"},
      {"a = sub(i, i)\nz = add(a, i)\n", "z = mul(i, 1)\n"},
      {"c = lt(x, y)\nz = where(c, x, y)\n",
       "a = mul(x, 2.0)\nb = sub(a, x)\nc = lt(b, y)\nz = where(c, x, y)\n"},
  };
  for (const auto& [a, b] : pairs)
    for (uint64_t seed = 1; seed < 4; ++seed)
      if (!agree(a, b, seed)) fail_test(std::string(a) + " must agree with\n" + b);
}

static void different_programs_differ(void**) {
  const std::pair<const char*, const char*> pairs[] = {
      {"z = add(x, y)\n", "z = sub(x, y)\n"},
      {"z = rms_norm(x, eps=1e-5)\n", "z = rms_norm(x, eps=1e-6)\n"},
      {"z = rms_norm(x, axis=1)\n", "z = rms_norm(x, axis=0)\n"},
      {"z = softmax(x, axis=1)\n", "z = softmax(x, axis=0)\n"},
      {"z = sqrt(x)\n", "z = tanh(x)\n"},
      {"z = max(x, y)\n", "z = min(x, y)\n"},
      {"z = lt(x, y)\n", "z = lt(y, x)\n"},
      {"a = exp(x)\nz = exp(a)\n", "z = exp(x)\n"},
      {"a = sqrt(x)\nb = sqrt(y)\nz = mul(a, b)\n", "a = mul(x, y)\nz = sqrt(a)\n"},  // not claimed: opaque
      {"z = cast(x, dtype=bf16)\n", "z = cast(x, dtype=f32)\n"},
      {"z = gelu(x)\n", "z = gelu_tanh(x)\n"},
      {"z = sum(x, axis=1)\n", "a = sum(x, axis=1)\nz = mul(a, 1.0000001)\n"},
  };
  for (const auto& [a, b] : pairs)
    if (agree(a, b)) fail_test(std::string(a) + " must differ from\n" + b);
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(moduli_calculate), cmocka_unit_test(primes_are_prime),
                              cmocka_unit_test(maxima_are_of_sets), cmocka_unit_test(integers_are_exact),
                              cmocka_unit_test(laws_hold),
                              cmocka_unit_test(equal_programs_agree),
                              cmocka_unit_test(different_programs_differ)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
