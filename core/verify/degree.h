// The degree domain of evaluate.h: how complicated a value is as a rational function of its random inputs.
// Bounds the probability that two different programs agree by accident (Schwartz-Zippel).
#pragma once

#include <cstdint>

#include "core/graph/graph.h"

namespace quern {

// Degrees of numerator and denominator, mod p and mod q. Exponentials, opaque results (maxima too) and
// integers that become numbers count as new variables. Doubles, because degrees can grow beyond any integer;
// then the bound says nothing, and says so.
struct Degree {
  double num_p = 0, den_p = 0;
  double num_q = 0, den_q = 0;
  bool has_q = true;
  bool operator==(const Degree&) const = default;
};

// A domain of evaluate.h; also counts what can coincide by accident.
class DegreeDomain {
 public:
  using Value = Degree;

  static Value input() { return {1, 0, 1, 0, true}; }

  Value number(double, DType) { return {}; }
  Value apply(OpCode code, DType compute, const Value* operands);
  Value convert(Value value, DType from, DType to);
  Value cast(Value value, DType from, DType to);
  Value zero(DType) { return {}; }
  Value add(Value a, Value b, DType dtype);
  Value multiply(Value a, Value b, DType dtype);
  Value identity(OpCode, DType) { return {}; }
  Value combine(OpCode reduction, Value a, Value b, DType dtype);
  Value finish(Value value, const Node&) { return value; }
  Value frame(Value shift) { return shift; }
  Value store(Value value, DType from, DType to) {
    return is_float(from) && is_float(to) ? value : cast(value, from, to);
  }
  Value rescale(Value sum, Value old_shift, Value new_shift) {
    return multiply(sum, exponential(add(old_shift, new_shift, DType::f32)), DType::f32);
  }

  Value divide(Value a, Value b);
  Value exponential(Value a);
  Value opaque(const Value* operands, int count);
  Value choose(Value a, Value b);
  Value truth(Value a, Value b);
  Value select(Value a, Value b);

  // Exponentials with different arguments must not meet, nor opaque functions, nor may a divisor vanish: how
  // many there were, and the largest degree of what they were applied to.
  struct Calls {
    double count = 0, degree = 0;
    void note(double of) {
      ++count;
      degree = of > degree ? of : degree;
    }
    // The probability that any two of them meet, in a field of m elements.
    double meet(double m) const { return count * (count - 1) / 2 * 2 * degree / m; }
    double vanish(double m) const { return count * degree / m; }
  };
  const Calls& exponentials() const { return exponentials_; }
  const Calls& opaques() const { return opaques_; }
  const Calls& divisions() const { return divisions_; }
  // Conditions and comparisons, and truth values that are calculated with: no polynomials.
  double choices() const { return choices_; }

 private:
  Calls exponentials_, opaques_, divisions_;
  double choices_ = 0;
};

}  // namespace quern
