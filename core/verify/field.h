// The finite-field domain of the verifier (Mirage, OSDI'25, section 5, made stricter).
//
// A value of a floating dtype is a pair of residues, mod p and mod q, with p = 2q + 1, both prime and drawn
// anew in each trial. Sums, products and quotients are exact in both. exp maps the residue mod q into the
// exponent of a random element w of order q mod p: exp(a + b) = exp(a) exp(b) holds, and nothing else that
// real exponentials do not satisfy. The result has no residue mod q; what needs it there is opaque.
//
// Opaque functions (sqrt, log, tanh, erf, pow, abs, comparisons, rounding) are random functions drawn once
// per trial: equal arguments, equal results, nothing else. max and min are random functions of the set of
// all arguments: associative, commutative and idempotent, as tiles need it, and nothing else.
//
// Values of i32 and bool are the integers themselves: 32 bits that wrap, compared exactly.
#pragma once

#include <array>
#include <cstdint>

#include "core/graph/graph.h"
#include "core/verify/choice_sets.h"
#include "core/verify/modulus.h"

namespace quern {

struct FieldValue {
  uint32_t p = 0, q = 0;  // an integer has its bits in both
  ChoiceSets::Id set = 0;  // of a maximum or a minimum: what it was taken of
  bool has_q = true;
  // The reduction whose identity this is, where that is an infinity, which no element of a field is.
  OpCode identity_of = OpCode::input;
  OpCode set_of = OpCode::input;  // max or min of `set`
  uint8_t padding = 0;            // explicit, so that values are copied as two words
  // Sets are equal when their residues are.
  bool operator==(const FieldValue& other) const {
    return p == other.p && q == other.q && has_q == other.has_q && identity_of == other.identity_of;
  }
  // A residue mod q counts where both have one: an exponential has lost it.
  bool agrees(const FieldValue& other) const {
    return p == other.p && identity_of == other.identity_of && (!has_q || !other.has_q || q == other.q);
  }
};

// A domain of evaluate.h. One object is one trial: the seed fixes the primes, w, every opaque function and
// the inputs.
class FieldDomain {
 public:
  using Value = FieldValue;
  explicit FieldDomain(uint64_t seed);
  const FieldPrimes& primes() const { return primes_; }

  // Uniformly random elements of an input, from an offset on in steps.
  void random(uint64_t index, DType dtype, int64_t at, int64_t step, int64_t count, Value* to) const {
    const uint64_t input = mix(seed_ ^ mix(index + 1));
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t bits = mix(input + static_cast<uint64_t>(at + i * step));
      to[i] = is_float(dtype) ? Value{primes_.p.reduce(bits), primes_.q.reduce(mix(bits))}
                              : integer(static_cast<int32_t>(dtype == DType::boolean ? bits >> 63 : bits));
    }
  }
  Value random(uint64_t index, uint64_t element, DType dtype = DType::f32) const {
    Value value;
    random(index, dtype, static_cast<int64_t>(element), 0, 1, &value);
    return value;
  }
  // Whether a division by zero has happened: the trial says nothing then, and another seed must be drawn.
  bool divided_by_zero() const { return divided_by_zero_; }

  static Value integer(int32_t value) {
    const uint32_t bits = static_cast<uint32_t>(value);
    return {bits, bits};
  }
  Value number(double value, DType dtype) const;
  Value apply(OpCode code, DType compute, const Value* operands);
  // An integer has its value in the field; what becomes an integer must be one (a number in the program).
  Value convert(Value value, DType from, DType to) const {
    return from == to ? value : converted(value, from, to);
  }
  Value cast(Value value, DType from, DType to) const;
  Value store(Value value, DType from, DType to) const {
    return is_float(from) && is_float(to) ? value : cast(value, from, to);
  }
  Value zero(DType) const { return {}; }
  Value add(Value a, Value b, DType dtype) const {
    if (!is_float(dtype)) return integer(static_cast<int32_t>(a.p + b.p));
    const bool has_q = a.has_q && b.has_q;
    return {primes_.p.add(a.p, b.p), has_q ? primes_.q.add(a.q, b.q) : 0, 0, has_q};
  }
  Value multiply(Value a, Value b, DType dtype) const {
    if (!is_float(dtype)) return integer(static_cast<int32_t>(a.p * b.p));
    const bool has_q = a.has_q && b.has_q;
    return {primes_.p.multiply(a.p, b.p), has_q ? primes_.q.multiply(a.q, b.q) : 0, 0, has_q};
  }
  Value identity(OpCode reduction, DType dtype) const;
  Value combine(OpCode reduction, Value a, Value b, DType dtype);
  Value finish(Value value, const Node&) const { return value; }
  Value frame(Value shift) const { return shift.identity_of == OpCode::reduce_max ? Value{} : shift; }
  Value rescale(Value sum, Value old_shift, Value new_shift) const {
    if (old_shift == new_shift) return sum;
    if (old_shift.identity_of == OpCode::reduce_max) return {};
    return multiply(sum, exponential(add(old_shift, negate(new_shift), DType::f32)), DType::f32);
  }

  // The operations of the meanings in ops.def.
  Value negate(Value a) const;
  Value divide(Value a, Value b);
  Value exponential(Value a) const;
  // The maximum or the minimum of two.
  Value choose(OpCode which, Value a, Value b);
  // A random function named by `name`; has no residue mod q that means anything else.
  Value opaque(uint64_t name, const Value* operands, int count) const;

 private:
  Value converted(Value value, DType from, DType to) const;

  uint64_t seed_;
  FieldPrimes primes_;
  // w to the powers of a 32-bit exponent, byte by byte: powers_[i][b] = w^(b * 256^i).
  std::array<std::array<uint32_t, 256>, 4> powers_;
  ChoiceSets sets_;
  bool divided_by_zero_ = false;
};

}  // namespace quern
