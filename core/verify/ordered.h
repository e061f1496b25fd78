// The ordered domain of the verifier: every value is a real number and, beside it, what the field makes of
// it. The real part decides whatever depends on order (max, min, abs, comparisons, conditions, casts to
// integers) and follows IEEE for NaN and infinities; the field part decides whether two values are equal.
//
// The real part is an f64 with a bound on its rounding error, carried along operation by operation. Two
// values whose intervals overlap are equal if their field parts are; if those differ, their order is unknown,
// and so is what depends on it. Unknown values are compared with nothing.
//
// i32 values are integers that wrap, in both parts.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "core/verify/field.h"

namespace quern {

struct OrderedValue {
  double real = 0;
  double error = 0;   // the exact value lies within real - error and real + error
  FieldValue field;   // zero where real is not finite
  // Of NaN: the value is unknown. Of an infinity: its sign is, because that of a zero is not specified.
  bool open = false;
  // Which branches of which conditions the value came through (OrderedDomain::sites), and whether it varies.
  uint64_t trace = 0;
  static constexpr uint64_t kVaries = uint64_t{1} << 63;

  bool is_unknown() const { return open && real != real; }
  bool is_finite() const { return real - real == 0; }
  bool is_zero() const { return real == 0 && error == 0; }
  bool operator==(const OrderedValue& other) const {
    return open == other.open && field == other.field &&
           (is_finite() ? other.is_finite() : real == other.real || (real != real && other.real != other.real));
  }
};

// A domain of evaluate.h. One object is one trial of one program; the seed fixes the field.
class OrderedDomain {
 public:
  using Value = OrderedValue;
  explicit OrderedDomain(uint64_t seed) : field_(seed) {}
  const FieldPrimes& primes() const { return field_.primes(); }

  // An element of an input.
  Value input(double value, DType dtype) const {
    Value result = number(value, dtype);
    result.trace = Value::kVaries;
    return result;
  }
  Value number(double value, DType dtype) const;
  Value zero(DType) const { return {}; }
  Value apply(OpCode code, DType compute, const Value* operands);
  Value convert(const Value& value, DType from, DType to) const;
  Value cast(const Value& value, DType from, DType to) const;
  Value store(const Value& value, DType from, DType to) const {
    return is_float(from) && is_float(to) ? value : cast(value, from, to);
  }
  Value add(const Value& a, const Value& b, DType dtype) const;
  Value multiply(const Value& a, const Value& b, DType dtype) const;
  Value identity(OpCode reduction, DType dtype) const { return number(reduction_identity(reduction, dtype), dtype); }
  Value combine(OpCode reduction, const Value& a, const Value& b, DType dtype);
  Value finish(const Value& value, const Node&) const { return value; }
  Value frame(const Value& shift) const { return is_lowest(shift) ? Value{} : shift; }
  Value rescale(const Value& sum, const Value& old_shift, const Value& new_shift) const;

  // The operations of the meanings in ops.def.
  Value negate(const Value& a) const;
  Value divide(const Value& a, const Value& b);
  Value exponential(const Value& a) const;
  Value function(OpCode code, const Value& a) const;  // log, sqrt, tanh, erf
  Value absolute(const Value& a) const;
  Value power(const Value& a, const Value& b) const;
  Value larger(const Value& a, const Value& b) const;
  Value compare(OpCode code, const Value& a, const Value& b) const;  // lt, le, eq
  Value select(const Value& condition, const Value& a, const Value& b);

  // Conditions of `where` that vary with the inputs, by the names of their operators. The first kSites are
  // told apart; later ones share theirs.
  static constexpr size_t kSites = 31;
  void at(const std::string& name);
  struct Site {
    std::string name;
    bool varies = false;
  };
  const std::vector<Site>& sites() const { return sites_; }
  static uint64_t branch(size_t site, bool taken) { return uint64_t{1} << (2 * (site % kSites) + taken); }

 private:
  static bool is_lowest(const Value& a) {
    return a.real == -std::numeric_limits<double>::infinity() && !a.open;
  }
  FieldDomain field_;
  std::vector<Site> sites_;
  size_t site_ = 0;
};

// How two values of one trial compare, computed by two programs.
enum class Agreement : uint8_t {
  equal,
  unknown,    // nothing can be said
  by_field,   // they differ by the laws of the field; as real numbers they may be equal
  different,  // they differ as real numbers
};
// `special`: an input holds NaN or an infinity; then NaN and infinities stand for each other.
Agreement agreement(const OrderedValue& expected, const OrderedValue& actual, bool special);

}  // namespace quern
