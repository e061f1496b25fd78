// The finite-field domain of the verifier (Mirage, OSDI'25, section 5, made stricter).
//
// A value is a pair of residues, mod p and mod q, with q | p - 1, both prime. Sums, products and quotients
// are exact in both. exp maps the residue mod q into the exponent of a random element w of order q mod p:
// exp(a + b) = exp(a) exp(b) holds, and nothing else that real exponentials do not satisfy. The result has no
// residue mod q; what needs it there is opaque.
//
// Opaque functions (sqrt, log, tanh, erf, pow, abs, comparisons, rounding) are random functions drawn once
// per trial: equal arguments, equal results, nothing else. max and min choose by a random total order:
// associative, commutative and idempotent, as tiles need it, and nothing else.
#pragma once

#include <array>
#include <cstdint>

#include "core/graph/graph.h"

namespace quern {

// q is the largest Sophie Germain prime below 2^31, p = 2q + 1.
inline constexpr uint64_t kFieldQ = 2147483543;
inline constexpr uint64_t kFieldP = 2 * kFieldQ + 1;

struct FieldValue {
  uint32_t p = 0;
  uint32_t q = 0;
  bool has_q = true;
  // The reduction whose identity this is, where that is an infinity, which no element of a field is.
  OpCode identity_of = OpCode::input;
  bool operator==(const FieldValue&) const = default;
  // A residue mod q counts where both have one: an exponential has lost it.
  bool agrees(const FieldValue& other) const {
    return p == other.p && identity_of == other.identity_of && (!has_q || !other.has_q || q == other.q);
  }
};

// A domain of evaluate.h. One object is one trial: the seed fixes w, every opaque function and the orders of
// max and min.
class FieldDomain {
 public:
  using Value = FieldValue;
  explicit FieldDomain(uint64_t seed);

  // Uniformly random elements of an input, from an offset on in steps.
  void random(uint64_t index, int64_t at, int64_t step, int64_t count, Value* to) const {
    const uint64_t input = mix(seed_ ^ mix(index + 1));
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t p = mix(input + static_cast<uint64_t>(at + i * step)), q = mix(p);
      to[i] = {residue_of(p, kFieldP), residue_of(q, kFieldQ)};
    }
  }
  Value random(uint64_t index, uint64_t element) const {
    Value value;
    random(index, static_cast<int64_t>(element), 0, 1, &value);
    return value;
  }
  // Whether a division by zero has happened: the trial says nothing then, and another seed must be drawn.
  bool divided_by_zero() const { return divided_by_zero_; }

  Value number(double value, DType dtype);
  Value apply(OpCode code, DType compute, const Value* operands);
  Value convert(Value value, DType, DType to) {
    if (to != DType::boolean) return value;
    const uint32_t bit = value.p != 0;
    return {bit, bit};
  }
  Value cast(Value value, DType from, DType to);
  Value zero(DType) { return {}; }
  Value add(Value a, Value b, DType) {
    const uint64_t p = uint64_t{a.p} + b.p, q = uint64_t{a.q} + b.q;
    const bool has_q = a.has_q && b.has_q;
    return {static_cast<uint32_t>(p < kFieldP ? p : p - kFieldP),
            static_cast<uint32_t>(!has_q        ? 0
                                  : q < kFieldQ ? q
                                                : q - kFieldQ),
            has_q};
  }
  Value multiply(Value a, Value b, DType) {
    const bool has_q = a.has_q && b.has_q;
    return {residue_of(uint64_t{a.p} * b.p, kFieldP), has_q ? residue_of(uint64_t{a.q} * b.q, kFieldQ) : 0,
            has_q};
  }
  Value identity(OpCode reduction, DType);
  Value combine(OpCode reduction, Value a, Value b, DType);
  Value finish(Value value, const Node&) { return value; }
  Value rescale(Value sum, Value old_shift, Value new_shift) {
    if (old_shift.identity_of == OpCode::reduce_max) return {};
    return multiply(sum, exponential(add(old_shift, negate(new_shift), DType::f32)), DType::f32);
  }

  // The operations of the meanings in ops.def.
  Value negate(Value a);
  Value divide(Value a, Value b);
  Value exponential(Value a);
  // A random function named by `name`; has no residue mod q that means anything else.
  Value opaque(uint64_t name, const Value* operands, int count) const;
  // The operand that the random order `name` puts higher.
  Value choose(uint64_t name, Value a, Value b) const;
  bool random_bit(uint64_t name, const Value* operands, int count) const;

 private:
  static uint32_t residue_of(uint64_t number, uint64_t m) { return static_cast<uint32_t>(number % m); }
  // The finaliser of splitmix64 (Steele, Lea, Flood 2014).
  static uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t seed_;
  // w to the powers of a 32-bit exponent, byte by byte: powers_[i][b] = w^(b * 256^i).
  std::array<std::array<uint32_t, 256>, 4> powers_;
  bool divided_by_zero_ = false;
};

}  // namespace quern
