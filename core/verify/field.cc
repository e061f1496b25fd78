#include "core/verify/field.h"

#include <cmath>

#include "core/base/hash.h"
#include "core/lang/meaning.h"
#include "core/lang/value_real.h"
#include "core/verify/evaluate.h"

namespace quern {

namespace {

constexpr size_t kMaxOperands = 3;  // of an operator

// Names of random functions: opcodes name their own, these are the others.
enum Name : uint64_t { kNotANumber = 1000, kInfinity, kGenerator, kExp, kCast };

uint64_t name_of(OpCode code) { return static_cast<uint64_t>(code); }

int32_t integer_of(const FieldValue& value) { return static_cast<int32_t>(value.p); }

// The value type over which the meanings of ops.def are instantiated: a field value that knows its trial, or
// a number of the meaning, which does not.
struct InField {
  static constexpr bool kFloating = true;
  FieldValue v;
  FieldDomain* domain = nullptr;
  double number = 0;

  InField(FieldValue value, FieldDomain* trial) : v(value), domain(trial) {}
  InField(double value) : number(value) {}
  FieldValue in(const FieldDomain* trial) const { return domain ? v : trial->number(number, DType::f32); }

  // f(domain, a, b), where both values are of the trial.
  template <class F>
  static InField combine(const InField& a, const InField& b, F f) {
    FieldDomain* domain = a.domain ? a.domain : b.domain;
    return {f(*domain, a.in(domain), b.in(domain)), domain};
  }
  InField unary(OpCode code) const { return {domain->opaque(name_of(code), &v, 1), domain}; }
  static InField binary(OpCode code, const InField& a, const InField& b) {
    return combine(a, b, [&](FieldDomain& domain, FieldValue x, FieldValue y) {
      const FieldValue operands[] = {x, y};
      return domain.opaque(name_of(code), operands, 2);
    });
  }
  static InField truth(OpCode code, const InField& a, const InField& b) {
    InField result = binary(code, a, b);
    result.v = FieldDomain::integer(result.v.p & 1);
    return result;
  }

  friend InField operator-(const InField& a) {
    if (!a.domain) return -a.number;
    return {a.domain->negate(a.v), a.domain};
  }
  friend InField operator+(const InField& a, const InField& b) {
    return combine(a, b, [](FieldDomain& f, FieldValue x, FieldValue y) { return f.add(x, y, DType::f32); });
  }
  friend InField operator-(const InField& a, const InField& b) {
    return combine(a, b, [](FieldDomain& f, FieldValue x, FieldValue y) {
      return f.add(x, f.negate(y), DType::f32);
    });
  }
  friend InField operator*(const InField& a, const InField& b) {
    return combine(a, b,
                   [](FieldDomain& f, FieldValue x, FieldValue y) { return f.multiply(x, y, DType::f32); });
  }
  friend InField operator/(const InField& a, const InField& b) {
    return combine(a, b, [](FieldDomain& f, FieldValue x, FieldValue y) { return f.divide(x, y); });
  }
  friend InField exp(const InField& a) { return {a.domain->exponential(a.v), a.domain}; }
  friend InField log(const InField& a) { return a.unary(OpCode::log); }
  friend InField sqrt(const InField& a) { return a.unary(OpCode::sqrt); }
  friend InField tanh(const InField& a) { return a.unary(OpCode::tanh); }
  friend InField erf(const InField& a) { return a.unary(OpCode::erf); }
  friend InField abs(const InField& a) { return a.unary(OpCode::abs); }
  friend InField pow(const InField& a, const InField& b) { return binary(OpCode::pow, a, b); }
  friend InField max(const InField& a, const InField& b) {
    return combine(a, b, [](FieldDomain& f, FieldValue x, FieldValue y) {
      return f.choose(OpCode::max, x, y);
    });
  }
  friend InField min(const InField& a, const InField& b) {
    return combine(a, b, [](FieldDomain& f, FieldValue x, FieldValue y) {
      return f.choose(OpCode::min, x, y);
    });
  }
  friend InField less(const InField& a, const InField& b) { return truth(OpCode::lt, a, b); }
  friend InField less_equal(const InField& a, const InField& b) { return truth(OpCode::le, a, b); }
  friend InField equal(const InField& a, const InField& b) {
    // Equal arguments are equal; others are taken to differ, which they do except with probability 1/p.
    return combine(a, b, [](FieldDomain&, FieldValue x, FieldValue y) { return FieldDomain::integer(x == y); });
  }
  friend InField select(const InField& condition, const InField& a, const InField& b) {
    return condition.v.p != 0 ? a : b;
  }
};

// A value as 64 bits, for sets.
uint64_t element_of(const FieldValue& value) {
  return (uint64_t{value.p} << 32) | (value.has_q ? value.q : ~uint32_t{0});
}

}  // namespace

FieldDomain::FieldDomain(uint64_t seed) : seed_(seed), primes_(draw_primes(seed)) {
  const Modulus& p = primes_.p;
  // A square that is not 1 has order q, because p - 1 = 2q.
  uint32_t root = 0;
  for (uint64_t i = 0; root < 2 || root == p.value() - 1; ++i) root = random(kGenerator, i).p;
  uint32_t base = p.multiply(root, root);
  for (auto& row : powers_) {
    uint32_t power = 1;
    for (uint32_t& entry : row) {
      entry = power;
      power = p.multiply(power, base);
    }
    base = power;
  }
}

FieldValue FieldDomain::opaque(uint64_t name, const Value* operands, int count) const {
  // Laid out by hand, without allocation: this is where most of the verifier's time goes.
  uint64_t key[2 + 2 * kMaxOperands] = {seed_, name};
  size_t words = 2;
  for (int i = 0; i < count; ++i) {
    key[words++] = element_of(operands[i]);
    key[words++] = static_cast<uint64_t>(operands[i].identity_of);
  }
  const Hash128 hash = hash128({reinterpret_cast<const char*>(key), words * sizeof key[0]});
  return {primes_.p.reduce(hash.high), primes_.q.reduce(hash.low)};
}

FieldValue FieldDomain::number(double value, DType dtype) const {
  if (!is_float(dtype)) return integer(static_cast<int32_t>(round_to(dtype, value)));
  if (dtype != DType::f32) value = round_to(dtype, value);
  if (std::isfinite(value)) return {primes_.p.residue(value), primes_.q.residue(value)};
  const FieldValue special = opaque(std::isnan(value) ? kNotANumber : kInfinity, nullptr, 0);
  return value < 0 ? negate(special) : special;
}

FieldValue FieldDomain::apply(OpCode code, DType compute, const Value* operands) {
  if (!is_float(compute)) {
    const Int integers[kMaxOperands] = {Int(integer_of(operands[0])), Int(integer_of(operands[1])),
                                        Int(integer_of(operands[2]))};
    return integer(apply_meaning<Int>(code, integers).v);
  }
  const InField values[kMaxOperands] = {{operands[0], this}, {operands[1], this}, {operands[2], this}};
  return apply_meaning<InField>(code, values).in(this);
}

FieldValue FieldDomain::converted(Value value, DType from, DType to) const {
  if (!is_float(from) && to == DType::i32) return value;
  if (to == DType::boolean) return integer(value.p != 0);
  if (is_float(to)) return number(integer_of(value), DType::f32);
  const uint32_t p = primes_.p.value();
  return integer(static_cast<int32_t>(value.p <= p / 2 ? int64_t{value.p} : int64_t{value.p} - p));
}

FieldValue FieldDomain::cast(Value value, DType from, DType to) const {
  if (from == to) return value;
  if (to == DType::boolean || (!is_float(from) && (to == DType::i32 || to == DType::f32)) ||
      (from == DType::boolean) || (is_float(from) && to == DType::f32))
    return convert(value, compute_class(from), compute_class(to));
  const FieldValue exact = convert(value, compute_class(from), DType::f32);
  const FieldValue rounded = opaque(kCast + static_cast<uint64_t>(to), &exact, 1);
  return is_float(to) ? rounded : integer(static_cast<int32_t>(rounded.p));
}

FieldValue FieldDomain::negate(Value a) const {
  return {primes_.p.negate(a.p), a.has_q ? primes_.q.negate(a.q) : 0, 0, a.has_q};
}

FieldValue FieldDomain::divide(Value a, Value b) {
  const bool has_q = a.has_q && b.has_q;
  if (b.p == 0 || (has_q && b.q == 0)) {
    divided_by_zero_ = true;
    return {};
  }
  return {primes_.p.multiply(a.p, primes_.p.inverse(b.p)),
          has_q ? primes_.q.multiply(a.q, primes_.q.inverse(b.q)) : 0, 0, has_q};
}

FieldValue FieldDomain::exponential(Value a) const {
  if (!a.has_q) {
    FieldValue result = opaque(kExp, &a, 1);
    result.q = 0;
    result.has_q = false;
    return result;
  }
  uint32_t power = 1;
  for (size_t i = 0; i < powers_.size(); ++i)
    power = primes_.p.multiply(power, powers_[i][a.q >> (8 * i) & 255]);
  return {power, 0, 0, false};
}

FieldValue FieldDomain::choose(OpCode which, Value a, Value b) {
  if (a == b) return b;
  ChoiceSets::Id set;
  if (a.set_of != which) std::swap(a, b);
  if (a.set_of != which)
    set = sets_.pair(element_of(a), element_of(b));
  else if (b.set_of != which)
    set = sets_.with(a.set, element_of(b));
  else
    set = sets_.unite(a.set, b.set);
  if (set == a.set && a.set_of == which) return a;
  const uint64_t bits = mix(sets_.fingerprint(set) ^ mix(seed_ ^ mix(name_of(which))));
  return {primes_.p.reduce(bits), primes_.q.reduce(mix(bits)), set, true, OpCode::input, which};
}

FieldValue FieldDomain::identity(OpCode reduction, DType dtype) const {
  const double identity = op_info(reduction).identity;
  if (!is_float(dtype) || std::isfinite(identity)) return number(reduction_identity(reduction, dtype), dtype);
  return {0, 0, 0, true, reduction};
}

FieldValue FieldDomain::combine(OpCode reduction, Value a, Value b, DType dtype) {
  if (!is_float(dtype))
    return integer(apply_combine(reduction, Int(integer_of(a)), Int(integer_of(b))).v);
  if (a.identity_of == reduction) return b;
  if (b.identity_of == reduction) return a;
  return apply_combine<InField>(reduction, {a, this}, {b, this}).v;
}

}  // namespace quern
