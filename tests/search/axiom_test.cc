// Every row of axioms.def holds in the verifier's field, and over the reals as far as Z3 decides; wrong rows
// are seen.
#include "core/search/axiom.h"

#include <functional>

#include "core/verify/field.h"
#include "tests/support/test.h"
#ifdef QUERN_HAVE_Z3
#include <z3++.h>
#endif

using namespace quern;

// Tensors over the labels j and k and one more that no axiom names: every element of the box, whether or not
// the tensor varies along all three.
static constexpr size_t kExtents[] = {2, 3, 2};
static constexpr size_t kElements = 12;
static size_t coordinate(size_t at, size_t dim) { return dim == 0 ? at / 6 : dim == 1 ? at / 2 % 3 : at % 2; }
static size_t move(size_t at, size_t dim, size_t to) {
  const size_t strides[] = {6, 2, 1};
  return at + (to - coordinate(at, dim)) * strides[dim];
}

template <class V>
struct Domain {
  std::function<V(size_t variable, size_t element)> input;
  std::function<V(OpCode, const V*)> apply;
  std::function<V(OpCode, V, V)> combine;
};

template <class V>
static std::vector<V> evaluate(const Axiom& axiom, const Pattern& pattern, const Domain<V>& domain) {
  std::vector<std::vector<V>> operands;
  for (const Pattern& child : pattern.children) operands.push_back(evaluate(axiom, child, domain));
  std::vector<V> result;
  for (size_t at = 0; at < kElements; ++at) {
    if (pattern.variable >= 0) {
      const bool fixed = axiom.absent_from == pattern.variable;
      result.push_back(domain.input(static_cast<size_t>(pattern.variable),
                                    fixed ? move(at, static_cast<size_t>(axiom.absent_label), 0) : at));
    } else if (pattern.label >= 0) {
      const size_t dim = static_cast<size_t>(pattern.label);
      V total = operands[0][move(at, dim, 0)];
      for (size_t to = 1; to < kExtents[dim]; ++to) {
        const V& next = operands[0][move(at, dim, to)];
        total = domain.combine(pattern.code, total, next);
      }
      result.push_back(total);
    } else {
      std::vector<V> values;
      for (const std::vector<V>& operand : operands) values.push_back(operand[at]);
      result.push_back(domain.apply(pattern.code, values.data()));
    }
  }
  return result;
}

// In how many of ten trials the two sides differ in some element.
static int differing_trials(const Axiom& axiom) {
  int differing = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    FieldDomain field(seed);
    Domain<FieldValue> domain;
    domain.input = [&](size_t variable, size_t element) { return field.random(variable, element); };
    domain.apply = [&](OpCode code, const FieldValue* values) {
      FieldValue operands[3];
      for (size_t i = 0; i < 3; ++i)
        operands[i] = values[i < static_cast<size_t>(op_info(code).max_arity) ? i : 0];
      return field.apply(code, DType::f32, operands);
    };
    domain.combine = [&](OpCode code, FieldValue a, FieldValue b) {
      return field.combine(code, a, b, DType::f32);
    };
    const auto left = evaluate(axiom, axiom.left, domain), right = evaluate(axiom, axiom.right, domain);
    assert_false(field.divided_by_zero());
    bool same = true;
    for (size_t at = 0; at < kElements; ++at)
      same = same && left[at].p == right[at].p && left[at].has_q == right[at].has_q &&
             (!left[at].has_q || left[at].q == right[at].q);
    differing += !same;
  }
  return differing;
}

static Axiom make(const char* left, const char* right, int absent_label = -1, int absent_from = -1) {
  return {"planted", parse_pattern(left), parse_pattern(right), absent_label, absent_from, true};
}

static void every_axiom_holds_in_the_field(void**) {
  assert_true(all_axioms().size() >= 18);
  for (const Axiom& axiom : all_axioms())
    if (differing_trials(axiom) != 0) fail_test(std::string(axiom.name) + " does not hold in the field");
}

static std::vector<Axiom> wrong_axioms() {
  std::vector<Axiom> wrong = {make("div(x, y)", "div(y, x)"),
                              make("div(x, add(y, z))", "add(div(x, y), div(x, z))"),
                              make("sum(k, mul(x, y))", "mul(sum(k, x), sum(k, y))"),
                              make("sum(k, add(x, y))", "add(sum(k, x), y)", 1, 1),
                              make("sum(k, div(x, y))", "div(x, sum(k, y))", 1, 0),
                              make("sum(j, x)", "sum(k, x)"),
                              make("mul(x, div(y, z))", "div(y, mul(x, z))"),
                              make("square(add(x, y))", "add(square(x), square(y))"),
                              make("exp(add(x, y))", "add(exp(x), exp(y))"),
                              make("exp(mul(x, y))", "mul(exp(x), exp(y))"),
                              make("sum(k, exp(x))", "exp(sum(k, x))"),
                              make("sqrt(add(x, y))", "add(sqrt(x), sqrt(y))"),
                              make("max(k, add(x, y))", "add(max(k, x), max(k, y))"),
                              make("silu(x)", "mul(sigmoid(x), sigmoid(x))")};
  // The conditions of the rows are needed.
  for (Axiom axiom : all_axioms()) {
    if (axiom.absent_label < 0) continue;
    axiom.absent_label = axiom.absent_from = -1;
    wrong.push_back(axiom);
  }
  return wrong;
}

static void wrong_axioms_are_seen(void**) {
  assert_true(wrong_axioms().size() > 14);
  for (const Axiom& axiom : wrong_axioms()) assert_int_equal(differing_trials(axiom), 10);
}

#ifdef QUERN_HAVE_Z3
// Only sums, products and quotients, which Z3 has over the reals.
static bool is_rational(const Pattern& pattern) {
  if (pattern.variable >= 0) return true;
  for (const Pattern& child : pattern.children)
    if (!is_rational(child)) return false;
  switch (pattern.code) {
    case OpCode::add:
    case OpCode::sub:
    case OpCode::mul:
    case OpCode::div:
    case OpCode::square:
    case OpCode::reciprocal:
    case OpCode::reduce_sum:
      return true;
    default:
      return false;
  }
}

// Whether some element of the sides can differ, for reals with which no denominator is 0.
static z3::check_result can_differ(const Axiom& axiom) {
  z3::context z;
  z3::solver solver = z3::tactic(z, "qfnra-nlsat").mk_solver();
  z3::params params(z);
  params.set("timeout", 5000u);
  solver.set(params);
  Domain<z3::expr> domain;
  // Quotients become products with a new number, which nlsat knows how to treat.
  auto quotient = [&](const z3::expr& a, const z3::expr& b) {
    const z3::expr inverse = z.real_const(("inverse " + b.to_string()).c_str());
    solver.add(b * inverse == 1);
    return a * inverse;
  };
  domain.input = [&](size_t variable, size_t element) {
    return z.real_const((std::to_string(variable) + "." + std::to_string(element)).c_str());
  };
  domain.apply = [&](OpCode code, const z3::expr* v) -> z3::expr {
    switch (code) {
      case OpCode::add:
        return v[0] + v[1];
      case OpCode::sub:
        return v[0] - v[1];
      case OpCode::mul:
        return v[0] * v[1];
      case OpCode::div:
        return quotient(v[0], v[1]);
      case OpCode::square:
        return v[0] * v[0];
      default:
        return quotient(z.real_val(1), v[0]);
    }
  };
  domain.combine = [](OpCode, z3::expr a, z3::expr b) { return a + b; };  // is_rational admits sums only
  // One element is as good as any: the box is the same around all of them.
  const z3::expr left = evaluate(axiom, axiom.left, domain)[0],
                 right = evaluate(axiom, axiom.right, domain)[0];
  solver.add(left != right);
  return solver.check();
}

static void z3_agrees_over_the_reals(void**) {
  int decided = 0, undecided = 0;
  for (const Axiom& axiom : all_axioms()) {
    if (!is_rational(axiom.left) || !is_rational(axiom.right)) continue;
    const z3::check_result result = can_differ(axiom);
    if (result == z3::sat) fail_test(std::string(axiom.name) + " does not hold over the reals");
    ++(result == z3::unsat ? decided : undecided);
    if (result == z3::unknown) print_message("%s: undecided by Z3\n", axiom.name);
  }
  print_message("%d rows hold over the reals, %d undecided\n", decided, undecided);
  assert_true(decided >= 12);
  int seen = 0;
  for (const Axiom& axiom : wrong_axioms())
    if (is_rational(axiom.left) && is_rational(axiom.right)) seen += can_differ(axiom) == z3::sat;
  print_message("%d wrong rows refuted over the reals\n", seen);
  assert_true(seen >= 6);
}
#endif

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_axiom_holds_in_the_field),
                              cmocka_unit_test(wrong_axioms_are_seen),
#ifdef QUERN_HAVE_Z3
                              cmocka_unit_test(z3_agrees_over_the_reals)
#endif
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
