// The values that follow a graph three times at once: in real arithmetic, as the unfused program would
// compute it, and how far rounding may move that.
//
// The unfused program computes in f32, accumulates in f32 and rounds every intermediate value to its dtype;
// functions are good to about two units in the last place of f32. One run of it says little, because rounding
// can be lucky, so every rounding adds its variance, and every operation hands on the variance of its
// operands: sums and products by the usual formulas, everything else by evaluating it at the ends of
// +-kReach deviations (no derivatives, so kinks, poles and comparisons that may come out either way are seen,
// too). x - max(x) is exactly 0 where x is the maximum.
//
// Noise is a value's own, or of a cause that it has in common with others. What many values read (the mean of their
// row) is a cause for them: in a sum over the row its noise adds up, or cancels, and does not average out. What the
// square of a deviation does is a cause of its own: where (x - mean)^2 is summed up the one cancels and the other does
// not. A value follows two causes, those that move it most; what other causes do counts as its own noise.
//
// This file is compiled for GPUs, too (core/profile/reference_program.h): beside value_real.h it needs what
// device_shim.cuh there has of dtypes and of the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/dtype_info.h"
#include "core/lang/value_real.h"

namespace quern {

struct Noisy {
  static constexpr bool kFloating = true;

  double exact = 0;
  double unfused = 0;  // a number that f32 (or i32) has
  // Of the unfused program's rounding noise, what is this value's own; infinite if nothing is known.
  double variance = 0;
  // What a deviation of one of each cause moves it by, signed, and the causes: sources; 0: none.
  static constexpr int kCauses = 2;
  double moves[kCauses] = {0, 0};
  uint32_t causes[kCauses] = {0, 0};
  uint32_t source = 0;  // values of one source are one value; 0: of none
  // Rounding decides whether the unfused program gets a finite number here.
  bool fragile = false;
  // Of a sum: that of the sizes of its terms so far.
  double reached = 0;
  // The real number is beyond f64, though nothing it is made of is infinite.
  bool overflowed = false;

  Noisy() = default;
  Noisy(double value) : exact(value), unfused(static_cast<float>(value)) {}
  // Variance of all its noise.
  double noise() const { return variance + moves[0] * moves[0] + moves[1] * moves[1]; }
  bool has_noise() const { return variance > 0 || moves[0] != 0 || moves[1] != 0; }
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

// Of the rounding of `value` to a float dtype. The last finite number is no further away than the end of the range.
inline double rounding_variance(DType dtype, double value) {
  const double size = std::fabs(value), least = is_narrow(dtype) ? least_rounding(dtype) : 0;
  const double most = std::max(size * relative_rounding(dtype), least),
               end = dtype_info(dtype).largest - size;
  return squared(end >= 0 && end < most ? end : most) / 3;
}

// Noise of the value's own is all that it has.
inline void set_noise(Noisy& value, double variance) {
  for (int i = 0; i < Noisy::kCauses; ++i) value.moves[i] = 0, value.causes[i] = 0;
  value.variance = variance;
}

// Adds what one cause does. With no room for it, the cause that does least becomes noise of the value's own.
inline void follow(Noisy& value, double move, uint32_t cause) {
  if (cause == 0 || move == 0) return;
  if (!std::isfinite(move)) {
    value.variance = std::numeric_limits<double>::infinity();
    return;
  }
  int at = std::fabs(value.moves[0]) <= std::fabs(value.moves[1]) ? 0 : 1;
  for (int i = 0; i < Noisy::kCauses; ++i)
    if (value.causes[i] == cause) {
      value.moves[i] += move;
      return;
    }
  if (std::fabs(move) <= std::fabs(value.moves[at])) {
    value.variance += squared(move);
    return;
  }
  value.variance += squared(value.moves[at]);
  value.moves[at] = move, value.causes[at] = cause;
}
inline void follow_causes(Noisy& value, const Noisy& of, double times) {
  for (int i = 0; i < Noisy::kCauses; ++i) follow(value, times * of.moves[i], of.causes[i]);
}

// A cause: that sums are taken in an order in which they overflow.
constexpr uint32_t kOverflow = 1u << 30;

// The square of a cause's deviation (and every even power), as a cause.
inline uint32_t squared_cause(uint32_t cause) { return cause == 0 ? 0 : cause | 1u << 31; }

// Of a product, what it has of the squares of deviations: as much at kReach of them as it is there.
inline void follow_squares(Noisy& product, const Noisy& a, const Noisy& b) {
  for (int i = 0; i < Noisy::kCauses; ++i)
    for (int j = 0; j < Noisy::kCauses; ++j)
      if (a.causes[i] != 0 && a.causes[i] == b.causes[j])
        follow(product, kReach * a.moves[i] * b.moves[j], squared_cause(a.causes[i]));
}

// As many values read it: its own noise is a cause for them.
inline Noisy shared(Noisy value) {
  if (value.source == 0 || value.variance == 0 || !std::isfinite(value.variance)) return value;
  const double own = std::sqrt(value.variance);
  value.variance = 0;
  follow(value, own, value.source);
  return value;
}

// Adds to `result` what f makes of the noise of x; result.exact must be f(x.exact).
template <class F>
void hand_on(Noisy& result, const Noisy& x, F f) {
  result.fragile |= x.fragile;
  if (!x.has_noise() && !x.fragile) return;
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
    if (std::isfinite(last) || !finite) return last;
    double within = 0, beyond = 1;  // of reach
    for (int step = 0; step < kLooks && (within == 0 || std::isinf(last)); ++step) {
      const double share = (within + beyond) / 2, value = f(x.exact + share * reach);
      (std::isfinite(value) ? within : beyond) = share;
      if (std::isfinite(value)) deviation = std::max(deviation, std::fabs(value - result.exact) / share);
    }
    if (within == 0) deviation = std::numeric_limits<double>::infinity();
    return last;
  };
  const double above = look_along(x.reach()), below = look_along(-x.reach());
  if (x.fragile) {
    // Whatever sums overflow in this order or that may do so all at once.
    const double infinity = std::numeric_limits<double>::infinity();
    const double up = look_at(infinity) - result.exact, down = look_at(-infinity) - result.exact;
    double overflow = std::isfinite(up) ? up : 0;
    if (std::isfinite(down) && std::fabs(down) > std::fabs(overflow)) overflow = down;
    follow(result, overflow / kReach, kOverflow);
  }
  deviation /= kReach;
  const double noise = x.noise();
  if (!(noise > 0) || !std::isfinite(noise) || !std::isfinite(deviation)) {
    result.variance += squared(deviation);
    return;
  }
  result.variance += squared(deviation) * (x.variance / noise);
  follow_causes(result, x, (above < below ? -deviation : deviation) / std::sqrt(noise));
  const double even = ((above - result.exact) + (below - result.exact)) / (2 * kReach);
  if (!std::isfinite(even)) return;
  for (int i = 0; i < Noisy::kCauses; ++i)
    follow(result, even * (squared(x.moves[i]) / noise), squared_cause(x.causes[i]));
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
  if (!std::isfinite(result.exact)) return set_noise(result, 0);
  if (result.exact != 0) {
    result.variance += relative * squared(result.exact);
    // Or what noise may bring there.
    if (std::fabs(result.exact) - result.reach() < kSmallest) result.variance += squared(kSmallest);
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
  double variance = a.noise() + b.noise();
  for (int i = 0; i < Noisy::kCauses; ++i)
    for (int j = 0; j < Noisy::kCauses; ++j)
      if (a.causes[i] == b.causes[j]) variance -= 2 * a.moves[i] * b.moves[j];
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
    // Instead of one that is no number it may be the other.
    const double other = result.fragile ? squared((a.exact - b.exact) / kReach) : 0;
    set_noise(result, std::max(a.noise(), b.noise()) + other);
    result.source = 0;
  }
  return result;
}

}  // namespace noise

inline double Noisy::reach() const { return noise::kReach * std::sqrt(noise()); }

inline Noisy operator-(Noisy a) {
  a.exact = -a.exact, a.unfused = -a.unfused, a.source = 0;
  for (double& move : a.moves) move = -move;
  return a;
}
inline Noisy sum(const Noisy& a, const Noisy& b, double sign) {
  Noisy result = noise::step(a.exact + sign * b.exact, a.unfused + sign * b.unfused);
  const bool same = a.source != 0 && a.source == b.source;
  result.variance = same ? noise::squared(1 + sign) * a.variance : a.variance + b.variance;
  noise::follow_causes(result, a, same ? 1 + sign : 1);
  if (!same) noise::follow_causes(result, b, sign);
  result.fragile = a.fragile || b.fragile;
  const bool rounds = result.has_noise() || result.unfused != a.unfused + sign * b.unfused;
  noise::round(result, rounds ? noise::kRounding : 0);
  return result;
}
inline Noisy operator+(const Noisy& a, const Noisy& b) { return sum(a, b, 1); }
inline Noisy operator-(const Noisy& a, const Noisy& b) { return sum(a, b, -1); }
inline Noisy operator*(const Noisy& a, const Noisy& b) {
  using noise::squared;
  Noisy result = noise::step(a.exact * b.exact, a.unfused * b.unfused);
  const bool same = a.source != 0 && a.source == b.source;
  if (a.variance > 0) result.variance += a.variance * squared(b.exact) * (same ? 4 : 1);
  if (b.variance > 0 && !same) result.variance += b.variance * squared(a.exact);
  if (a.has_noise() && b.has_noise()) result.variance += a.noise() * b.noise();
  noise::follow_causes(result, a, same ? 2 * b.exact : b.exact);
  if (!same) noise::follow_causes(result, b, a.exact);
  noise::follow_squares(result, a, b);
  result.fragile = a.fragile || b.fragile;
  const bool rounds = result.has_noise() || result.unfused != a.unfused * b.unfused;
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
  if (x.exact < 0) x = -x;
  x.unfused = std::fabs(x.unfused), x.source = 0;
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
  noise::set_noise(result, std::max(result.noise(), other.noise()) +
                               noise::squared((result.exact - other.exact) / noise::kReach));
  result.fragile |= other.fragile;
  return result;
}

}  // namespace quern
