// The steps of the unfused program over the values of noisy.h: sums, products, operators, rounding.
//
// Compiled for GPUs, too, behind noisy.h.
#pragma once

#include "core/verify/noisy.h"

namespace quern {

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
  follow_causes(result, a, 1);
  follow_causes(result, b, 1);
  if (!is_float(dtype)) return whole(result, Int(a.exact) + Int(b.exact), Int(a.unfused) + Int(b.unfused));
  const double sum = a.unfused + b.unfused;
  result.exact = a.exact + b.exact;
  result.unfused = static_cast<float>(sum);
  // In another order the sum of some terms may overflow, to an infinity that one of the others may oppose.
  result.reached = a.reached + (std::isfinite(b.exact) ? std::fabs(b.exact) : 0);
  result.fragile |= result.reached > std::numeric_limits<float>::max();
  if (result.has_noise() || !is_exact_sum(a.exact, b.exact))
    result.variance += rates.partial * result.exact * result.exact + rates.terms * b.exact * b.exact;
  return result;
}

// What a reduction that is no sum makes of two integers: `meaning` makes an Int of two.
template <class Meaning>
Noisy combine_integers(const Noisy& a, const Noisy& b, Meaning meaning) {
  const Int exact[2] = {Int(a.exact), Int(b.exact)}, unfused[2] = {Int(a.unfused), Int(b.unfused)};
  return whole(both(a, b, 0), meaning(exact), meaning(unfused));
}

// Of a product of two numbers that are rounded to 10 bits of mantissa.
constexpr double kTf32Product = 2 * (0x1p-22 / 3);

// A product of a matmul. `tf32`: operands of f32 products are rounded to 10 bits of mantissa.
inline Noisy multiply_terms(const Noisy& a, const Noisy& b, DType dtype, bool tf32) {
  const double a2 = a.exact * a.exact, b2 = b.exact * b.exact;
  Noisy result = both(a, b, a.variance * b2 + b.variance * a2);
  if (a.has_noise() && b.has_noise()) result.variance += a.noise() * b.noise();
  follow_causes(result, a, b.exact);
  follow_causes(result, b, a.exact);
  follow_squares(result, a, b);
  if (!is_float(dtype)) return whole(result, Int(a.exact) * Int(b.exact), Int(a.unfused) * Int(b.unfused));
  result.exact = a.exact * b.exact;
  result.unfused = static_cast<float>(a.unfused * b.unfused);
  if (tf32 && dtype == DType::f32) {
    result.variance += kTf32Product * a2 * b2;
    constexpr double kRoundsToInfinity = 0x1.ffep127;
    const double larger = std::max(std::fabs(a.exact), std::fabs(b.exact));
    result.fragile |= larger >= kRoundsToInfinity && std::isfinite(larger);
  }
  return result;
}

// A meaning over floats: `meaning` makes a V of Vs, for Noisy and Real. That of one operand is looked at as a
// whole, however often it names it. Poles: what is infinite at 0 is so in real arithmetic, not because f64
// ends.
template <class Meaning>
Noisy apply_to_floats(Meaning meaning, const Noisy* operands, int arity, bool has_poles) {
  Noisy first = operands[0];
  if (arity == 1) set_noise(first, 0), first.fragile = false;
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

// The operator `cast`. `source`: a number that no other value has.
inline Noisy cast(const Noisy& x, DType to, uint32_t source) {
  if (to == DType::boolean) return convert_class(x, to);
  Noisy result;
  result.exact = round_to(to, x.exact);
  result.unfused = round_to(to, x.unfused);
  hand_on(result, x, [&](double at) { return round_to(to, at); });
  if (!is_float(to)) result.fragile = false;
  if (!std::isfinite(result.exact)) result.overflowed = x.overflowed;
  if (result.unfused == x.unfused) result.source = x.source;
  if (result.has_noise() && result.source == 0) result.source = source;
  return result;
}

// What an operator that computes gives, in the dtype of its result. `source`: a number that no other value
// has.
inline Noisy finish(Noisy value, DType dtype, uint32_t source) {
  value.reached = 0;
  if (!std::isfinite(value.exact)) {
    set_noise(value, 0);
  } else {
    value.overflowed = false;
    if (std::isnan(value.variance)) value.variance = std::numeric_limits<double>::infinity();
  }
  if (is_float(dtype)) {
    // By the noise of what it is made of: rounding to the nearest leaves in range what is there.
    if (value.has_noise())
      value.fragile |= std::isfinite(round_to(dtype, value.exact + value.reach())) !=
                       std::isfinite(round_to(dtype, value.exact - value.reach()));
    const double rounded = round_to(dtype, value.unfused);
    // What is not exact may fall on a number of the dtype by luck.
    const bool narrow = dtype != DType::f32;
    if (rounded != value.unfused || (narrow && value.has_noise())) {
      if (rounded != value.unfused) value.source = 0;
      value.unfused = rounded;
      if (std::isfinite(value.exact)) value.variance += rounding_variance(dtype, value.exact);
    }
    // The program that overflows here knows nothing of the real number.
    if (std::isfinite(value.exact) && !std::isfinite(value.unfused) &&
        value.unfused != round_to(dtype, value.exact)) {
      value.variance = std::numeric_limits<double>::infinity();
      value.fragile = true;
    }
  }
  if (value.has_noise() && value.source == 0) value.source = source;
  return value;
}

}  // namespace noise

}  // namespace quern
