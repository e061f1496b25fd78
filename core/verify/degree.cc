#include "core/verify/degree.h"

#include <algorithm>

#include "core/lang/meaning.h"

namespace quern {

namespace {

// The value type over which the meanings of ops.def are instantiated.
struct InDegree {
  static constexpr bool kFloating = true;
  Degree v;
  DegreeDomain* domain;

  InDegree(Degree value, DegreeDomain* counts) : v(value), domain(counts) {}
  InDegree(double) : domain(nullptr) {}
  static DegreeDomain* counts(const InDegree& a, const InDegree& b) { return a.domain ? a.domain : b.domain; }
  static InDegree opaque(const InDegree& a, const InDegree& b, int count) {
    DegreeDomain* domain = counts(a, b);
    const Degree operands[] = {a.v, b.v};
    return {domain->opaque(operands, count), domain};
  }
  static InDegree truth(const InDegree& a, const InDegree& b) {
    DegreeDomain* domain = counts(a, b);
    return {domain->truth(a.v, b.v), domain};
  }

  friend InDegree operator-(const InDegree& a) { return a; }
  friend InDegree operator+(const InDegree& a, const InDegree& b) {
    DegreeDomain* domain = counts(a, b);
    return {domain->add(a.v, b.v, DType::f32), domain};
  }
  friend InDegree operator-(const InDegree& a, const InDegree& b) { return a + b; }
  friend InDegree operator*(const InDegree& a, const InDegree& b) {
    DegreeDomain* domain = counts(a, b);
    return {domain->multiply(a.v, b.v, DType::f32), domain};
  }
  friend InDegree operator/(const InDegree& a, const InDegree& b) {
    DegreeDomain* domain = counts(a, b);
    return {domain->divide(a.v, b.v), domain};
  }
  friend InDegree exp(const InDegree& a) { return {a.domain->exponential(a.v), a.domain}; }
  friend InDegree log(const InDegree& a) { return opaque(a, a, 1); }
  friend InDegree sqrt(const InDegree& a) { return opaque(a, a, 1); }
  friend InDegree tanh(const InDegree& a) { return opaque(a, a, 1); }
  friend InDegree erf(const InDegree& a) { return opaque(a, a, 1); }
  friend InDegree abs(const InDegree& a) { return opaque(a, a, 1); }
  friend InDegree pow(const InDegree& a, const InDegree& b) { return opaque(a, b, 2); }
  friend InDegree max(const InDegree& a, const InDegree& b) {
    DegreeDomain* domain = counts(a, b);
    return {domain->choose(a.v, b.v), domain};
  }
  friend InDegree min(const InDegree& a, const InDegree& b) { return max(a, b); }
  friend InDegree less(const InDegree& a, const InDegree& b) { return truth(a, b); }
  friend InDegree less_equal(const InDegree& a, const InDegree& b) { return truth(a, b); }
  friend InDegree equal(const InDegree& a, const InDegree& b) { return truth(a, b); }
  friend InDegree select(const InDegree&, const InDegree& a, const InDegree& b) {
    DegreeDomain* domain = counts(a, b);
    return {domain->select(a.v, b.v), domain};
  }
};

}  // namespace

Degree DegreeDomain::apply(OpCode code, DType compute, const Value* operands) {
  const InDegree values[3] = {{operands[0], this}, {operands[1], this}, {operands[2], this}};
  if (is_float(compute)) return apply_meaning<InDegree>(code, values).v;
  if (op_info(code).result == ResultRule::truth || op_info(code).result == ResultRule::select) ++choices_;
  return {};
}

Degree DegreeDomain::convert(Value value, DType from, DType to) {
  if (is_float(from) == is_float(to)) return value;
  if (is_float(from)) {
    if (to == DType::boolean) truth(value, {});
    return {};
  }
  if (from == DType::boolean) ++choices_;
  return input();
}

Degree DegreeDomain::combine(OpCode reduction, Value a, Value b, DType dtype) {
  if (!is_float(dtype)) return {};
  return apply_combine<InDegree>(reduction, {a, this}, {b, this}).v;
}

Degree DegreeDomain::cast(Value value, DType from, DType to) {
  if (!is_float(from) || to == DType::boolean) return convert(value, from, to);
  if (from == to || to == DType::f32) return value;
  return opaque(&value, 1);
}

Degree DegreeDomain::add(Value a, Value b, DType dtype) {
  if (!is_float(dtype)) return {};
  Degree sum;
  sum.num_p = std::max(a.num_p + b.den_p, b.num_p + a.den_p);
  sum.den_p = a.den_p + b.den_p;
  sum.num_q = std::max(a.num_q + b.den_q, b.num_q + a.den_q);
  sum.den_q = a.den_q + b.den_q;
  sum.has_q = a.has_q && b.has_q;
  return sum;
}

Degree DegreeDomain::multiply(Value a, Value b, DType dtype) {
  if (!is_float(dtype)) return {};
  return {a.num_p + b.num_p, a.den_p + b.den_p, a.num_q + b.num_q, a.den_q + b.den_q, a.has_q && b.has_q};
}

Degree DegreeDomain::divide(Value a, Value b) {
  divisions_.note(std::max(b.num_p, b.num_q));
  return {a.num_p + b.den_p, a.den_p + b.num_p, a.num_q + b.den_q, a.den_q + b.num_q, a.has_q && b.has_q};
}

Degree DegreeDomain::exponential(Value a) {
  if (a.has_q)
    exponentials_.note(a.num_q + a.den_q);
  else
    opaques_.note(a.num_p + a.den_p);
  return {1, 0, 0, 0, false};
}

Degree DegreeDomain::opaque(const Value* operands, int count) {
  double degree = 0;
  for (int i = 0; i < count; ++i)
    degree = std::max({degree, operands[i].num_p + operands[i].den_p, operands[i].num_q + operands[i].den_q});
  opaques_.note(degree);
  return input();
}

Degree DegreeDomain::truth(Value a, Value b) {
  choose(a, b);
  ++choices_;
  return {};
}

Degree DegreeDomain::choose(Value a, Value b) {
  const Value operands[] = {a, b};
  return opaque(operands, 2);
}

Degree DegreeDomain::select(Value a, Value b) {
  ++choices_;
  return {std::max(a.num_p, b.num_p), std::max(a.den_p, b.den_p), std::max(a.num_q, b.num_q),
          std::max(a.den_q, b.den_q), a.has_q && b.has_q};
}

}  // namespace quern
