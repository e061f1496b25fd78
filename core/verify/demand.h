// What an output may hold by the values of noisy.h.
//
// Compiled for GPUs, too, behind noisy.h.
#pragma once

#include "core/verify/noisy.h"

namespace quern {

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

// Noise that is so many times a value leaves no program any of its digits. What they make then spreads wider than the estimate of
// the noise, which is linear.
constexpr double kLost = 0x1p30, kSpread = 4;

// What one rounding of a result moves it by at most, relative and absolute. What is subnormal in f32 may be
// flushed to zero.
inline double output_rounding(DType dtype, double value) {
  if (!is_float(dtype)) return 0;
  return std::fabs(value) * relative_rounding(dtype) + std::max(least_rounding(dtype), kSmallest);
}

// The rounding of the output itself is no noise: it is counted at its largest, and twice like all error of
// the unfused program.
inline double own_bound(DType dtype, const Noisy& value) {
  const double rounding = is_float(dtype) ? rounding_variance(dtype, value.exact) : 0;
  const double noise = value.noise(), variance = noise >= rounding ? noise - rounding : noise;
  const double one_run = std::fabs(value.unfused - value.exact);
  const double error = std::max(std::isfinite(one_run) ? one_run : 0, kDeviations * std::sqrt(variance));
  const bool lost = value.exact != 0 && error > kLost * std::fabs(value.exact);
  return 2 * ((lost ? kSpread * error : error) + output_rounding(dtype, value.exact));
}

// `special`: an input or a written number is not finite.
inline Demand demand_of(DType dtype, const Noisy& value, bool special) {
  const double rounded = round_to(dtype, value.exact);
  if (std::isfinite(value.exact)) {
    const bool overflows = value.unfused == rounded && std::isinf(rounded);
    if (!std::isfinite(value.unfused) && !overflows) return Demand::anything;
    return value.fragile || std::isinf(value.noise()) ? Demand::close_if_finite : Demand::close;
  }
  // The unfused program may have met an infinity of its own, where a number leaves its dtype.
  const bool agree = std::isnan(value.exact) ? std::isnan(value.unfused) : value.unfused == value.exact;
  if (!agree || value.fragile || value.overflowed) return Demand::anything;
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
