// A value type and a domain that follow a graph three times at once: in real arithmetic, as the unfused
// program would compute it, and how far rounding may move that.
//
// The unfused program computes in f32, accumulates in f32 and rounds every intermediate value to its dtype;
// functions are good to about two units in the last place of f32. One run of it says little, because rounding
// can be lucky, so every rounding adds its variance, and every operation hands on the variance of its
// operands: sums and products by the usual formulas, everything else by evaluating it at the ends of
// +-kReach deviations (no derivatives, so kinks, poles and comparisons that may come out either way are seen,
// too). Noises are taken as independent, except those of one value with itself: x - max(x) is exactly 0 where
// x is the maximum.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/verify/real_domains.h"

namespace quern {

struct Noisy {
  static constexpr bool kFloating = true;

  double exact = 0;
  double unfused = 0;   // a number that f32 (or i32) has
  double variance = 0;  // of the unfused program's rounding noise; infinite if nothing is known
  uint32_t source = 0;  // values of one source are one value; 0: of none
  // Rounding decides whether the unfused program gets a finite number here.
  bool fragile = false;
  // Of a sum: that of the sizes of its terms so far.
  double reached = 0;
  // The real number is beyond f64, though nothing it is made of is infinite.
  bool overflowed = false;

  Noisy() = default;
  Noisy(double value) : exact(value), unfused(static_cast<float>(value)) {}
  double reach() const;
};

namespace noise {

// How many standard deviations functions are looked at around a value.
constexpr double kReach = 4;
// Variances, relative to the square of what is rounded: to nearest f32, and by a function of the GPU.
constexpr double kRounding = 0x1p-48 / 3, kFunction = 0x1p-44 / 3;
// Tensor cores add up some eight products and cut off what f32 has no room for: on average 2^-24 of the sum
// each time, always in the same direction.
constexpr double kTruncation = 0x1p-27 * 0x1p-27 / 9;
constexpr double kSmallest = 0x1p-126;  // what is smaller may be flushed to 0

inline double squared(double x) { return x * x; }

// Of the rounding of `value` to a float dtype.
inline double rounding_variance(DType dtype, double value) {
  const double relative = dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
  const double least = dtype == DType::f16 ? 0x1p-25 : dtype == DType::bf16 ? 0x1p-134 : 0;
  return squared(std::max(std::fabs(value) * relative, least)) / 3;
}

// Adds to `result` what f makes of the noise of x; result.exact must be f(x.exact).
template <class F>
void hand_on(Noisy& result, const Noisy& x, F f) {
  result.fragile |= x.fragile;
  if (x.variance == 0 && !x.fragile) return;
  double deviation = 0;
  const bool finite = std::isfinite(result.exact);
  auto look_at = [&](double at) {
    const double value = f(at);
    if (std::isfinite(value) != finite)
      result.fragile = true;
    else if (finite)
      deviation = std::max(deviation, std::fabs(value - result.exact));
  };
  look_at(x.exact + x.reach());
  look_at(x.exact - x.reach());
  if (x.fragile) {
    look_at(std::numeric_limits<double>::infinity());
    look_at(-std::numeric_limits<double>::infinity());
  }
  result.variance += squared(deviation / kReach);
}

// Whether all sums of such terms are exact, in whatever order they are taken; that one order is may be luck.
inline bool is_exact_sum(double a, double b) {
  auto whole = [](double x) { return x == std::rint(x) && std::fabs(x) < 0x1p16; };
  return a == 0 || b == 0 || (whole(a) && whole(b));
}

// The result of one step in f32, and the noise it adds itself.
inline Noisy step(double exact, double unfused) {
  Noisy result;
  result.exact = exact;
  result.unfused = static_cast<float>(unfused);
  return result;
}
inline void round(Noisy& result, double relative) {
  if (!std::isfinite(result.exact)) {
    result.variance = 0;
    return;
  }
  if (result.exact != 0) {
    result.variance += relative * squared(result.exact);
    if (std::fabs(result.exact) < kSmallest) result.variance += squared(kSmallest);
  }
  if (std::isnan(result.variance)) result.variance = std::numeric_limits<double>::infinity();
}

// A function of one argument. `argument` is the relative error that computing in f32 adds to the argument.
template <class F, class Single>
Noisy function(const Noisy& x, F f, Single single, double argument = 0) {
  Noisy result = step(f(x.exact), single(static_cast<float>(x.unfused)));
  hand_on(result, x, f);
  round(result, kFunction + argument);
  return result;
}

// Whether a and b may come out in the other order.
inline bool may_cross(const Noisy& a, const Noisy& b) {
  if (a.source != 0 && a.source == b.source) return false;
  const double variance = a.variance + b.variance;
  return a.fragile || b.fragile ||
         (variance > 0 && !(std::fabs(a.exact - b.exact) > kReach * std::sqrt(variance)));
}

// A truth value; `flips` if rounding decides it.
inline Noisy truth(bool exact, bool unfused, bool flips) {
  Noisy result = step(exact, unfused);
  if (flips) result.variance = squared(1 / kReach);
  return result;
}

// The larger or the smaller: exactly one of them.
template <class Better>
Noisy choose(const Noisy& a, const Noisy& b, Better better) {
  const bool crossing = may_cross(a, b);
  const Noisy &exact = better(Real(a.exact), Real(b.exact)) ? a : b,
              &unfused = better(Real(a.unfused), Real(b.unfused)) ? a : b;
  Noisy result = exact;
  result.unfused = unfused.unfused;
  result.fragile = a.fragile || b.fragile;
  result.overflowed = a.overflowed || b.overflowed;
  if (crossing && std::isfinite(result.exact)) {
    result.variance = std::max(a.variance, b.variance);
    result.source = 0;
  }
  return result;
}

}  // namespace noise

inline double Noisy::reach() const { return noise::kReach * std::sqrt(variance); }

inline Noisy operator-(Noisy a) {
  a.exact = -a.exact, a.unfused = -a.unfused, a.source = 0;
  return a;
}
inline Noisy sum(const Noisy& a, const Noisy& b, double sign) {
  Noisy result = noise::step(a.exact + sign * b.exact, a.unfused + sign * b.unfused);
  const bool same = a.source != 0 && a.source == b.source;
  result.variance = same ? noise::squared(1 + sign) * a.variance : a.variance + b.variance;
  result.fragile = a.fragile || b.fragile;
  const bool rounds = result.variance > 0 || result.unfused != a.unfused + sign * b.unfused;
  noise::round(result, rounds ? noise::kRounding : 0);
  return result;
}
inline Noisy operator+(const Noisy& a, const Noisy& b) { return sum(a, b, 1); }
inline Noisy operator-(const Noisy& a, const Noisy& b) { return sum(a, b, -1); }
inline Noisy operator*(const Noisy& a, const Noisy& b) {
  using noise::squared;
  Noisy result = noise::step(a.exact * b.exact, a.unfused * b.unfused);
  const bool same = a.source != 0 && a.source == b.source;
  if (a.variance > 0) result.variance += a.variance * (squared(b.exact) * (same ? 4 : 1) + b.variance);
  if (b.variance > 0 && !same) result.variance += b.variance * squared(a.exact);
  result.fragile = a.fragile || b.fragile;
  const bool rounds = result.variance > 0 || result.unfused != a.unfused * b.unfused;
  noise::round(result, rounds ? noise::kRounding : 0);
  return result;
}
inline Noisy operator/(const Noisy& a, const Noisy& b) {
  Noisy result =
      noise::step(a.exact / b.exact, static_cast<float>(a.unfused) / static_cast<float>(b.unfused));
  if (a.source == 0 || a.source != b.source) {
    noise::hand_on(result, a, [&](double x) { return x / b.exact; });
    noise::hand_on(result, b, [&](double x) { return a.exact / x; });
  } else {
    result.fragile = a.fragile;
  }
  noise::round(result, noise::kFunction);
  return result;
}
inline Noisy exp(const Noisy& x) {
  // 2 to the power of x log2(e), a product that is rounded.
  return noise::function(
      x, [](double v) { return std::exp(v); }, [](float v) { return std::exp(v); },
      noise::kRounding * noise::squared(x.exact));
}
inline Noisy log(const Noisy& x) {
  return noise::function(
      x, [](double v) { return std::log(v); }, [](float v) { return std::log(v); });
}
inline Noisy sqrt(const Noisy& x) {
  return noise::function(
      x, [](double v) { return std::sqrt(v); }, [](float v) { return std::sqrt(v); });
}
inline Noisy tanh(const Noisy& x) {
  return noise::function(
      x, [](double v) { return std::tanh(v); }, [](float v) { return std::tanh(v); });
}
inline Noisy erf(const Noisy& x) {
  return noise::function(
      x, [](double v) { return std::erf(v); }, [](float v) { return std::erf(v); });
}
inline Noisy pow(const Noisy& x, const Noisy& y) {
  Noisy result = noise::step(std::pow(x.exact, y.exact),
                             std::pow(static_cast<float>(x.unfused), static_cast<float>(y.unfused)));
  noise::hand_on(result, x, [&](double v) { return std::pow(v, y.exact); });
  noise::hand_on(result, y, [&](double v) { return std::pow(x.exact, v); });
  // 2 to the power of y log2(x), likewise.
  const double exponent = x.exact == 0 ? 0 : y.exact * std::log(std::fabs(x.exact));
  noise::round(result, noise::kFunction + 4 * noise::kRounding * noise::squared(exponent));
  return result;
}
inline Noisy abs(Noisy x) {
  x.exact = std::fabs(x.exact), x.unfused = std::fabs(x.unfused), x.source = 0;
  return x;
}
inline Noisy max(const Noisy& a, const Noisy& b) {
  return noise::choose(a, b, [](Real x, Real y) { return x.v > y.v || std::isnan(x.v); });
}
inline Noisy min(const Noisy& a, const Noisy& b) {
  return noise::choose(a, b, [](Real x, Real y) { return x.v < y.v || std::isnan(x.v); });
}
inline Noisy less(const Noisy& a, const Noisy& b) {
  return noise::truth(a.exact < b.exact, a.unfused < b.unfused, noise::may_cross(a, b));
}
inline Noisy less_equal(const Noisy& a, const Noisy& b) {
  return noise::truth(a.exact <= b.exact, a.unfused <= b.unfused, noise::may_cross(a, b));
}
inline Noisy equal(const Noisy& a, const Noisy& b) {
  return noise::truth(a.exact == b.exact, a.unfused == b.unfused, noise::may_cross(a, b));
}
inline Noisy select(const Noisy& condition, const Noisy& a, const Noisy& b) {
  Noisy result = condition.exact != 0 ? a : b;
  const Noisy& other = condition.exact != 0 ? b : a;
  result.unfused = condition.unfused != 0 ? a.unfused : b.unfused;
  if (!noise::may_cross(condition, Noisy(0))) return result;
  result.source = 0;
  if (!std::isfinite(result.exact) || !std::isfinite(other.exact)) {
    result.fragile |= std::isfinite(result.exact) != std::isfinite(other.exact);
    return result;
  }
  result.variance = std::max(result.variance, other.variance) +
                    noise::squared((result.exact - other.exact) / noise::kReach);
  result.fragile |= other.fragile;
  return result;
}

// A domain of evaluate.h.
class NoisyDomain {
 public:
  using Value = Noisy;

  // `tf32`: operands of f32 products are rounded to 10 bits of mantissa.
  explicit NoisyDomain(bool tf32) : tf32_(tf32) {}

  // A number that every program has exactly.
  static Noisy known(double value) {
    Noisy result;
    result.exact = result.unfused = value;
    return result;
  }
  Noisy number(double value, DType dtype) { return known(round_to(dtype, value)); }
  Noisy zero(DType) { return {}; }
  Noisy identity(OpCode reduction, DType dtype) { return known(reduction_identity(reduction, dtype)); }
  Noisy apply(OpCode code, DType compute, const Noisy* operands);
  Noisy convert(const Noisy& x, DType from, DType to) { return from == to ? x : convert_class(x, to); }
  Noisy cast(const Noisy& x, DType from, DType to);
  Noisy combine(OpCode reduction, const Noisy& a, const Noisy& b, DType dtype) {
    const uint32_t laws = op_info(reduction).laws;
    if (laws & kLinear) return add(a, b, dtype);
    if (is_float(dtype) || laws & kOrdered) return apply_combine(reduction, a, b);
    return whole(both(a, b, 0), apply_combine(reduction, Int(a.exact), Int(b.exact)),
                 apply_combine(reduction, Int(a.unfused), Int(b.unfused)));
  }
  Noisy finish(Noisy value, const Node& node);

  void begin_sums(int64_t terms, bool of_products) {
    terms_ = noise::kRounding * static_cast<double>(terms);
    partial_ = noise::kRounding + (of_products ? noise::kTruncation * static_cast<double>(terms) : 0);
  }
  // A sum may be taken in any order, so every step may round what the terms so far make in random order: the
  // partial sum of this order, and each term again in all later steps.
  Noisy add(const Noisy& a, const Noisy& b, DType dtype) {
    Noisy result = both(a, b, a.variance + b.variance);
    if (!is_float(dtype)) return whole(result, Int(a.exact) + Int(b.exact), Int(a.unfused) + Int(b.unfused));
    const double sum = a.unfused + b.unfused;
    result.exact = a.exact + b.exact;
    result.unfused = static_cast<float>(sum);
    // In another order the sum of some terms may overflow.
    result.reached = a.reached + std::fabs(b.exact);
    result.fragile |= result.reached > std::numeric_limits<float>::max() && std::isfinite(result.reached);
    if (result.variance > 0 || !noise::is_exact_sum(a.exact, b.exact))
      result.variance += partial_ * result.exact * result.exact + terms_ * b.exact * b.exact;
    return result;
  }
  Noisy multiply(const Noisy& a, const Noisy& b, DType dtype) {
    const double a2 = a.exact * a.exact, b2 = b.exact * b.exact;
    Noisy result = both(a, b, a.variance * (b2 + b.variance) + b.variance * a2);
    if (!is_float(dtype)) return whole(result, Int(a.exact) * Int(b.exact), Int(a.unfused) * Int(b.unfused));
    result.exact = a.exact * b.exact;
    result.unfused = static_cast<float>(a.unfused * b.unfused);
    if (tf32_ && dtype == DType::f32) result.variance += 2 * (0x1p-22 / 3) * a2 * b2;
    return result;
  }

 private:
  static Noisy both(const Noisy& a, const Noisy& b, double variance) {
    Noisy result;
    result.variance = variance;
    result.fragile = a.fragile | b.fragile;
    result.overflowed = a.overflowed | b.overflowed;
    return result;
  }
  static Noisy whole(Noisy result, Int exact, Int unfused) {
    result.exact = exact.v, result.unfused = unfused.v;
    return result;
  }
  Noisy convert_class(const Noisy& x, DType to);
  Noisy apply_to_integers(OpCode code, const Noisy* operands, size_t arity);

  const bool tf32_;
  // Variances that a step of a sum adds, relative to the square of its term and of the sum so far.
  double terms_ = 0, partial_ = 0;
  uint32_t sources_ = 0;
};

}  // namespace quern
