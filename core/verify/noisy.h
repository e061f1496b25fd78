// The values that follow a graph three times at once: in real arithmetic, as the unfused program would
// compute it, and how far rounding may move that; and what an output may hold by them.
//
// The unfused program computes in f32, accumulates in f32 and rounds every intermediate value to its dtype;
// functions are good to about two units in the last place of f32. One run of it says little, because rounding
// can be lucky, so every rounding adds its variance, and every operation hands on the variance of its
// operands: sums and products by the usual formulas, everything else by evaluating it at the ends of
// +-kReach deviations (no derivatives, so kinks, poles and comparisons that may come out either way are seen,
// too). Noises are taken as independent, except those of one value with itself: x - max(x) is exactly 0 where
// x is the maximum.
//
// This file is compiled for GPUs, too (core/profile/reference_program.h): beside value_real.h it needs DType,
// is_float and round_to, and of the library what device_shim.cuh there has.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/dtype.h"
#include "core/lang/value_real.h"

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
constexpr int kLooks = 24;  // at nearer ones, where those give no finite number
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
    return value;
  };
  // Where f leaves its domain, or the range of its result, nearer values tell how steep it is.
  auto look_along = [&](double reach) {
    const double last = look_at(x.exact + reach);
    if (std::isfinite(last) || !finite) return;
    double within = 0, beyond = 1;  // of reach
    for (int step = 0; step < kLooks && (within == 0 || std::isinf(last)); ++step) {
      const double share = (within + beyond) / 2, value = f(x.exact + share * reach);
      (std::isfinite(value) ? within : beyond) = share;
      if (std::isfinite(value)) deviation = std::max(deviation, std::fabs(value - result.exact) / share);
    }
    if (within == 0) deviation = std::numeric_limits<double>::infinity();
  };
  look_along(x.reach());
  look_along(-x.reach());
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

// ---- the steps of a program ----

namespace noise {

// A number that every program has exactly.
inline Noisy known(double value) {
  Noisy result;
  result.exact = result.unfused = value;
  return result;
}

// What is handed on by sums, products and integers, whatever they make of the values.
inline Noisy both(const Noisy& a, const Noisy& b, double variance) {
  Noisy result;
  result.variance = variance;
  result.fragile = a.fragile | b.fragile;
  result.overflowed = a.overflowed | b.overflowed;
  return result;
}
inline Noisy whole(Noisy result, Int exact, Int unfused) {
  result.exact = exact.v, result.unfused = unfused.v;
  return result;
}

// Variances that a step of a sum adds, relative to the square of its term and of the sum so far.
struct SumRates {
  double terms = 0, partial = 0;
};
inline SumRates sum_rates(double terms, bool of_products) {
  SumRates rates;
  rates.terms = kRounding * terms;
  rates.partial = kRounding + (of_products ? kTruncation * terms : 0);
  return rates;
}

// A sum may be taken in any order, so every step may round what the terms so far make in random order: the
// partial sum of this order, and each term again in all later steps.
inline Noisy add_term(const Noisy& a, const Noisy& b, DType dtype, const SumRates& rates) {
  Noisy result = both(a, b, a.variance + b.variance);
  if (!is_float(dtype)) return whole(result, Int(a.exact) + Int(b.exact), Int(a.unfused) + Int(b.unfused));
  const double sum = a.unfused + b.unfused;
  result.exact = a.exact + b.exact;
  result.unfused = static_cast<float>(sum);
  // In another order the sum of some terms may overflow, to an infinity that one of the others may oppose.
  result.reached = a.reached + (std::isfinite(b.exact) ? std::fabs(b.exact) : 0);
  result.fragile |= result.reached > std::numeric_limits<float>::max();
  if (result.variance > 0 || !is_exact_sum(a.exact, b.exact))
    result.variance += rates.partial * result.exact * result.exact + rates.terms * b.exact * b.exact;
  return result;
}

// What a reduction that is no sum makes of two integers: `meaning` makes an Int of two.
template <class Meaning>
Noisy combine_integers(const Noisy& a, const Noisy& b, Meaning meaning) {
  const Int exact[2] = {Int(a.exact), Int(b.exact)}, unfused[2] = {Int(a.unfused), Int(b.unfused)};
  return whole(both(a, b, 0), meaning(exact), meaning(unfused));
}

// A product of a matmul. `tf32`: operands of f32 products are rounded to 10 bits of mantissa.
inline Noisy multiply_terms(const Noisy& a, const Noisy& b, DType dtype, bool tf32) {
  const double a2 = a.exact * a.exact, b2 = b.exact * b.exact;
  Noisy result = both(a, b, a.variance * (b2 + b.variance) + b.variance * a2);
  if (!is_float(dtype)) return whole(result, Int(a.exact) * Int(b.exact), Int(a.unfused) * Int(b.unfused));
  result.exact = a.exact * b.exact;
  result.unfused = static_cast<float>(a.unfused * b.unfused);
  if (tf32 && dtype == DType::f32) result.variance += 2 * (0x1p-22 / 3) * a2 * b2;
  return result;
}

// A meaning over floats: `meaning` makes a V of Vs, for Noisy and Real. That of one operand is looked at as a
// whole, however often it names it. Poles: what is infinite at 0 is so in real arithmetic, not because f64
// ends.
template <class Meaning>
Noisy apply_to_floats(Meaning meaning, const Noisy* operands, int arity, bool has_poles) {
  Noisy first = operands[0];
  if (arity == 1) first.variance = 0, first.fragile = false;
  Noisy result = meaning(arity == 1 ? &first : operands);
  if (arity == 1) {
    hand_on(result, operands[0], [&](double at) {
      const Real moved(at);
      return meaning(&moved).v;
    });
    result.source = 0;
  }
  bool leaves_f64 = std::isinf(result.exact);
  for (int i = 0; i < arity; ++i)
    if (!std::isfinite(operands[i].exact) || (has_poles && operands[i].exact == 0)) leaves_f64 = false;
  result.overflowed = leaves_f64;
  if (!std::isfinite(result.exact))
    for (int i = 0; i < arity; ++i) result.overflowed |= operands[i].overflowed;
  return result;
}

// A meaning over integers: `meaning` makes an Int of three.
template <class Meaning>
Noisy apply_to_integers(Meaning meaning, const Noisy* operands, int arity) {
  auto evaluate = [&](bool exact, int moved, double at) {
    Int values[3] = {0, 0, 0};
    for (int i = 0; i < arity; ++i)
      values[i] = Int(i == moved ? round_to(DType::i32, at)
                      : exact    ? operands[i].exact
                                 : operands[i].unfused);
    return static_cast<double>(meaning(values).v);
  };
  Noisy result;
  result.exact = evaluate(true, arity, 0);
  result.unfused = evaluate(false, arity, 0);
  for (int i = 0; i < arity; ++i)
    hand_on(result, operands[i], [&](double at) { return evaluate(true, i, at); });
  return result;
}

// Between the dtypes that values are computed in (f32, i32, bool).
inline Noisy convert_class(const Noisy& x, DType to) {
  if (to == DType::boolean) return truth(x.exact != 0, x.unfused != 0, may_cross(x, known(0)));
  if (!is_float(to)) return x;
  Noisy result = x;  // integers above 2^24 are rounded
  result.unfused = static_cast<float>(x.unfused);
  if (result.unfused != x.unfused) round(result, kRounding);
  return result;
}

// The operator `cast`.
inline Noisy cast(const Noisy& x, DType to) {
  if (to == DType::boolean) return convert_class(x, to);
  Noisy result;
  result.exact = round_to(to, x.exact);
  result.unfused = round_to(to, x.unfused);
  hand_on(result, x, [&](double at) { return round_to(to, at); });
  if (!is_float(to)) result.fragile = false;
  if (!std::isfinite(result.exact)) result.overflowed = x.overflowed;
  if (result.unfused == x.unfused) result.source = x.source;
  return result;
}

// What an operator that computes gives, in the dtype of its result. `source`: a number that no other value
// has.
inline Noisy finish(Noisy value, DType dtype, uint32_t source) {
  value.reached = 0;
  if (!std::isfinite(value.exact)) {
    value.variance = 0;
  } else {
    value.overflowed = false;
    if (std::isnan(value.variance)) value.variance = std::numeric_limits<double>::infinity();
  }
  if (is_float(dtype)) {
    const double rounded = round_to(dtype, value.unfused);
    // What is not exact may fall on a number of the dtype by luck.
    const bool narrow = dtype != DType::f32;
    if (rounded != value.unfused || (narrow && value.variance > 0)) {
      if (rounded != value.unfused) value.source = 0;
      value.unfused = rounded;
      if (std::isfinite(value.exact)) value.variance += rounding_variance(dtype, value.exact);
    }
    // The program that overflows here knows nothing of the real number.
    if (std::isfinite(round_to(dtype, value.exact)) && !std::isfinite(value.unfused)) {
      value.variance = std::numeric_limits<double>::infinity();
      value.fragile = true;
    }
    if (value.variance > 0)
      value.fragile |= std::isfinite(round_to(dtype, value.exact + value.reach())) !=
                       std::isfinite(round_to(dtype, value.exact - value.reach()));
  }
  if (value.variance > 0 && value.source == 0) value.source = source;
  return value;
}

}  // namespace noise

// ---- outputs ----

// What an element of an output must be.
enum class Demand : uint8_t {
  close,            // finite, and within the element's own bound
  close_if_finite,  // the same, but rounding decides whether the unfused program is finite
  infinity,         // that of the reference
  nan,
  not_finite,
  anything,
};

namespace noise {

// Of the noise of the unfused program.
constexpr double kDeviations = 4;

// What one rounding of a result moves it by at most, relative and absolute. What is subnormal in f32 may be
// flushed to zero.
inline double output_rounding(DType dtype, double value) {
  switch (dtype) {
    case DType::f16:
      return std::fabs(value) * 0x1p-11 + 0x1p-25;
    case DType::bf16:
      return std::fabs(value) * 0x1p-8 + 0x1p-126;
    case DType::f32:
      return std::fabs(value) * 0x1p-24 + 0x1p-126;
    default:
      return 0;
  }
}

// The rounding of the output itself is no noise: it is counted at its largest, and twice like all error of
// the unfused program.
inline double own_bound(DType dtype, const Noisy& value) {
  const double rounding = is_float(dtype) ? rounding_variance(dtype, value.exact) : 0;
  const double variance = value.variance >= rounding ? value.variance - rounding : value.variance;
  const double one_run = std::fabs(value.unfused - value.exact);
  const double error = std::max(std::isfinite(one_run) ? one_run : 0, kDeviations * std::sqrt(variance));
  return 2 * (error + output_rounding(dtype, value.exact));
}

// `special`: an input or a written number is not finite.
inline Demand demand_of(DType dtype, const Noisy& value, bool special) {
  const double rounded = round_to(dtype, value.exact);
  if (std::isfinite(value.exact)) {
    const bool overflows = value.unfused == rounded && std::isinf(rounded);
    if (!std::isfinite(value.unfused) && !overflows) return Demand::anything;
    return value.fragile || std::isinf(value.variance) ? Demand::close_if_finite : Demand::close;
  }
  if (std::isfinite(value.unfused) || value.fragile || value.overflowed) return Demand::anything;
  return special ? Demand::not_finite : std::isnan(value.exact) ? Demand::nan : Demand::infinity;
}

inline bool meets(Demand demand, DType dtype, double actual, double exact, double bound) {
  switch (demand) {
    case Demand::close_if_finite:
      if (!std::isfinite(actual)) return true;
      [[fallthrough]];
    case Demand::close:
      if (std::isfinite(actual)) return std::fabs(actual - exact) <= bound;
      // An infinity stands for what is too large for the dtype.
      return actual == round_to(dtype, exact + std::copysign(bound, actual));
    case Demand::infinity:
      return actual == exact;
    case Demand::nan:
      return std::isnan(actual);
    case Demand::not_finite:
      return !std::isfinite(actual);
    case Demand::anything:
      return true;
  }
  return false;
}

}  // namespace noise

}  // namespace quern
