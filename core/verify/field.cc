#include "core/verify/field.h"

#include <cmath>
#include <utility>

#include "core/base/hash.h"
#include "core/lang/meaning.h"

namespace quern {

namespace {

// a, b and m below 2^32, as everything here.
uint32_t mul_mod(uint64_t a, uint64_t b, uint64_t m) { return static_cast<uint32_t>(a * b % m); }

uint32_t pow_mod(uint64_t base, uint64_t exponent, uint64_t m) {
  uint32_t result = 1;
  for (; exponent; exponent >>= 1, base = mul_mod(base, base, m))
    if (exponent & 1) result = mul_mod(result, base, m);
  return result;
}

// Of a number that is not 0, m prime: the extended Euclidean algorithm.
uint32_t inverse(uint64_t a, uint64_t m) {
  int64_t r = static_cast<int64_t>(m), next_r = static_cast<int64_t>(a), t = 0, next_t = 1;
  while (next_r != 0) {
    const int64_t quotient = r / next_r;
    r = std::exchange(next_r, r - quotient * next_r);
    t = std::exchange(next_t, t - quotient * next_t);
  }
  return static_cast<uint32_t>(t < 0 ? t + static_cast<int64_t>(m) : t);
}

constexpr size_t kMaxOperands = 3;  // of an operator

// Names of random functions: opcodes name their own, these are the others.
enum Name : uint64_t { kConstant = 1000, kGenerator, kExp, kMax, kMin, kCast };

uint64_t name_of(OpCode code) { return static_cast<uint64_t>(code); }

// A double as an element of the field of `m` elements: mantissa times a power of two, exactly.
uint32_t residue(double value, uint64_t m) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  const int64_t mantissa = static_cast<int64_t>(std::ldexp(fraction, 53));
  const uint64_t magnitude = static_cast<uint64_t>(std::llabs(mantissa)) % m;
  const int shift = exponent - 53;
  const uint64_t power = pow_mod(2, static_cast<uint64_t>(std::abs(shift)), m);
  const uint32_t scaled = mul_mod(magnitude, shift < 0 ? inverse(power, m) : power, m);
  return mantissa < 0 && scaled ? static_cast<uint32_t>(m) - scaled : scaled;
}

// The value type over which the meanings of ops.def are instantiated: a field value that knows its trial.
struct InField {
  static constexpr bool kFloating = true;
  FieldValue v;
  FieldDomain* domain;

  InField(FieldValue value, FieldDomain* trial) : v(value), domain(trial) {}
  InField(double number) : v{residue(number, kFieldP), residue(number, kFieldQ)}, domain(nullptr) {}
  InField make(FieldValue value) const { return {value, domain}; }
  static FieldDomain* trial(const InField& a, const InField& b) { return a.domain ? a.domain : b.domain; }

  InField unary(OpCode code) const { return make(domain->opaque(name_of(code), &v, 1)); }
  static InField truth(OpCode code, const InField& a, const InField& b) {
    FieldDomain* domain = trial(a, b);
    const FieldValue operands[] = {a.v, b.v};
    const uint32_t bit = domain->random_bit(name_of(code), operands, 2);
    return {FieldValue{bit, bit}, domain};
  }

  friend InField operator-(const InField& a) { return a.make(a.domain->negate(a.v)); }
  friend InField operator+(const InField& a, const InField& b) {
    FieldDomain* domain = trial(a, b);
    return {domain->add(a.v, b.v, DType::f32), domain};
  }
  friend InField operator-(const InField& a, const InField& b) {
    FieldDomain* domain = trial(a, b);
    return {domain->add(a.v, domain->negate(b.v), DType::f32), domain};
  }
  friend InField operator*(const InField& a, const InField& b) {
    FieldDomain* domain = trial(a, b);
    return {domain->multiply(a.v, b.v, DType::f32), domain};
  }
  friend InField operator/(const InField& a, const InField& b) {
    FieldDomain* domain = trial(a, b);
    return {domain->divide(a.v, b.v), domain};
  }
  friend InField exp(const InField& a) { return a.make(a.domain->exponential(a.v)); }
  friend InField log(const InField& a) { return a.unary(OpCode::log); }
  friend InField sqrt(const InField& a) { return a.unary(OpCode::sqrt); }
  friend InField tanh(const InField& a) { return a.unary(OpCode::tanh); }
  friend InField erf(const InField& a) { return a.unary(OpCode::erf); }
  friend InField abs(const InField& a) { return a.unary(OpCode::abs); }
  friend InField pow(const InField& a, const InField& b) {
    FieldDomain* domain = trial(a, b);
    const FieldValue operands[] = {a.v, b.v};
    return {domain->opaque(name_of(OpCode::pow), operands, 2), domain};
  }
  friend InField max(const InField& a, const InField& b) {
    FieldDomain* domain = trial(a, b);
    return {domain->choose(kMax, a.v, b.v), domain};
  }
  friend InField min(const InField& a, const InField& b) {
    FieldDomain* domain = trial(a, b);
    return {domain->choose(kMin, a.v, b.v), domain};
  }
  friend InField less(const InField& a, const InField& b) { return truth(OpCode::lt, a, b); }
  friend InField less_equal(const InField& a, const InField& b) { return truth(OpCode::le, a, b); }
  friend InField equal(const InField& a, const InField& b) {
    // Equal arguments are equal; others are taken to differ, which they do except with probability 1/p.
    const uint32_t bit = a.v == b.v;
    return {FieldValue{bit, bit}, trial(a, b)};
  }
  friend InField select(const InField& condition, const InField& a, const InField& b) {
    return condition.v.p != 0 ? a : b;
  }
};

}  // namespace

FieldDomain::FieldDomain(uint64_t seed) : seed_(seed) {
  // A square that is not 1 has order q, because p - 1 = 2q.
  uint64_t root = 0;
  for (uint64_t i = 0; root < 2 || root == kFieldP - 1; ++i) root = random(kGenerator, i).p;
  uint64_t base = mul_mod(root, root, kFieldP);
  for (auto& row : powers_) {
    uint64_t power = 1;
    for (uint32_t& entry : row) {
      entry = static_cast<uint32_t>(power);
      power = mul_mod(power, base, kFieldP);
    }
    base = power;
  }
}

FieldValue FieldDomain::opaque(uint64_t name, const Value* operands, int count) const {
  // Laid out by hand, without allocation: this is where most of the verifier's time goes.
  uint64_t key[2 + 3 * kMaxOperands] = {seed_, name};
  size_t words = 2;
  for (int i = 0; i < count; ++i) {
    key[words++] = operands[i].p;
    key[words++] = operands[i].has_q ? uint64_t{operands[i].q} : kFieldQ;
    key[words++] = static_cast<uint64_t>(operands[i].identity_of);
  }
  const Hash128 hash = hash128({reinterpret_cast<const char*>(key), words * sizeof key[0]});
  return {residue_of(hash.high, kFieldP), residue_of(hash.low, kFieldQ)};
}

bool FieldDomain::random_bit(uint64_t name, const Value* operands, int count) const {
  return opaque(name, operands, count).p & 1;
}

FieldValue FieldDomain::number(double value, DType dtype) {
  if (dtype != DType::f32) value = round_to(dtype, value);
  if (std::isfinite(value)) return {residue(value, kFieldP), residue(value, kFieldQ)};
  const FieldValue special{std::isnan(value) ? 0u : value > 0 ? 1u : 2u, 0};
  return opaque(kConstant, &special, 1);
}

FieldValue FieldDomain::apply(OpCode code, DType, const Value* operands) {
  const InField values[3] = {{operands[0], this}, {operands[1], this}, {operands[2], this}};
  return apply_meaning<InField>(code, values).v;
}

FieldValue FieldDomain::cast(Value value, DType from, DType to) {
  if (from == to || (!is_float(from) && to == DType::f32)) return value;
  if (to == DType::boolean) return convert(value, from, to);
  return opaque(kCast + static_cast<uint64_t>(to), &value, 1);
}

FieldValue FieldDomain::negate(Value a) {
  auto opposite = [](uint32_t x, uint64_t m) { return x ? static_cast<uint32_t>(m) - x : 0; };
  return {opposite(a.p, kFieldP), a.has_q ? opposite(a.q, kFieldQ) : 0, a.has_q};
}

FieldValue FieldDomain::divide(Value a, Value b) {
  const bool has_q = a.has_q && b.has_q;
  if (b.p == 0 || (has_q && b.q == 0)) {
    divided_by_zero_ = true;
    return {};
  }
  return {mul_mod(a.p, inverse(b.p, kFieldP), kFieldP),
          has_q ? mul_mod(a.q, inverse(b.q, kFieldQ), kFieldQ) : 0, has_q};
}

FieldValue FieldDomain::exponential(Value a) {
  if (!a.has_q) {
    FieldValue result = opaque(kExp, &a, 1);
    result.has_q = false;
    return result;
  }
  uint32_t power = 1;
  for (size_t i = 0; i < powers_.size(); ++i)
    power = mul_mod(power, powers_[i][a.q >> (8 * i) & 255], kFieldP);
  return {power, 0, false};
}

FieldValue FieldDomain::choose(uint64_t name, Value a, Value b) const {
  if (a == b) return b;
  const FieldValue rank_a = opaque(name, &a, 1), rank_b = opaque(name, &b, 1);
  return rank_a.p > rank_b.p ? a : b;
}

FieldValue FieldDomain::identity(OpCode reduction, DType dtype) {
  const double identity = op_info(reduction).identity;
  return std::isfinite(identity) ? number(identity, dtype) : FieldValue{0, 0, true, reduction};
}

FieldValue FieldDomain::combine(OpCode reduction, Value a, Value b, DType) {
  if (a.identity_of == reduction) return b;
  if (b.identity_of == reduction) return a;
  return apply_combine<InField>(reduction, {a, this}, {b, this}).v;
}

}  // namespace quern
