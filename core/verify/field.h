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
  uint64_t p = 0;
  uint64_t q = 0;
  bool has_q = true;
  bool is_lowest = false;  // the identity of max: below every value
  bool operator==(const FieldValue&) const = default;
};

// A domain of evaluate.h. One object is one trial: the seed fixes w, every opaque function and the orders of
// max and min.
class FieldDomain {
 public:
  using Value = FieldValue;
  explicit FieldDomain(uint64_t seed);

  // A uniformly random input; `index` and `element` say which.
  Value random(uint64_t index, uint64_t element) const;
  // Whether a division by zero has happened: the trial says nothing then, and another seed must be drawn.
  bool divided_by_zero() const { return divided_by_zero_; }

  Value number(double value, DType dtype);
  Value apply(OpCode code, DType compute, const Value* operands);
  Value convert(Value value, DType, DType to) {
    if (to != DType::boolean) return value;
    const uint64_t bit = value.p != 0;
    return {bit, bit};
  }
  Value cast(Value value, DType from, DType to);
  Value zero(DType) { return {}; }
  Value add(Value a, Value b, DType) {
    const uint64_t p = a.p + b.p, q = a.q + b.q;
    const bool has_q = a.has_q && b.has_q;
    return {p < kFieldP ? p : p - kFieldP, !has_q ? 0 : q < kFieldQ ? q : q - kFieldQ, has_q};
  }
  Value multiply(Value a, Value b, DType) {
    const bool has_q = a.has_q && b.has_q;
    return {a.p * b.p % kFieldP, has_q ? a.q * b.q % kFieldQ : 0, has_q};
  }
  Value lowest(DType) { return {0, 0, true, true}; }
  Value maximum(Value a, Value b, DType);
  Value finish(Value value, const Node&) { return value; }
  Value rescale(Value sum, Value old_shift, Value new_shift) {
    if (old_shift.is_lowest) return {};
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
  uint64_t seed_;
  // w to the powers of a 32-bit exponent, byte by byte: powers_[i][b] = w^(b * 256^i).
  std::array<std::array<uint32_t, 256>, 4> powers_;
  bool divided_by_zero_ = false;
};

}  // namespace quern
