// Value domains of the reference: real numbers as f64, and 32-bit integers that wrap.
#pragma once

#include <cmath>
#include <cstdint>

namespace quern {

struct Real {
  static constexpr bool kFloating = true;
  double v;
  Real(double value) : v(value) {}

  friend Real operator-(Real a) { return -a.v; }
  friend Real operator+(Real a, Real b) { return a.v + b.v; }
  friend Real operator-(Real a, Real b) { return a.v - b.v; }
  friend Real operator*(Real a, Real b) { return a.v * b.v; }
  friend Real operator/(Real a, Real b) { return a.v / b.v; }
  friend Real exp(Real a) { return std::exp(a.v); }
  friend Real log(Real a) { return std::log(a.v); }
  friend Real sqrt(Real a) { return std::sqrt(a.v); }
  friend Real tanh(Real a) { return std::tanh(a.v); }
  friend Real erf(Real a) { return std::erf(a.v); }
  friend Real pow(Real a, Real b) { return std::pow(a.v, b.v); }
  friend Real abs(Real a) { return std::fabs(a.v); }
  // NaN if one is NaN.
  friend Real max(Real a, Real b) { return a.v > b.v || std::isnan(a.v) ? a : b; }
  friend Real min(Real a, Real b) { return a.v < b.v || std::isnan(a.v) ? a : b; }
  friend Real less(Real a, Real b) { return a.v < b.v; }
  friend Real less_equal(Real a, Real b) { return a.v <= b.v; }
  friend Real equal(Real a, Real b) { return a.v == b.v; }
  friend Real select(Real condition, Real a, Real b) { return condition.v != 0 ? a : b; }
};

struct Int {
  static constexpr bool kFloating = false;
  int32_t v;
  Int(double value) : v(static_cast<int32_t>(value)) {}
  static Int wrap(uint32_t bits) { return Int(static_cast<int32_t>(bits)); }

  friend Int operator-(Int a) { return wrap(-a.bits()); }
  friend Int operator+(Int a, Int b) { return wrap(a.bits() + b.bits()); }
  friend Int operator-(Int a, Int b) { return wrap(a.bits() - b.bits()); }
  friend Int operator*(Int a, Int b) { return wrap(a.bits() * b.bits()); }
  friend Int abs(Int a) { return a.v < 0 ? -a : a; }
  friend Int max(Int a, Int b) { return a.v > b.v ? a : b; }
  friend Int min(Int a, Int b) { return a.v < b.v ? a : b; }
  friend Int less(Int a, Int b) { return a.v < b.v; }
  friend Int less_equal(Int a, Int b) { return a.v <= b.v; }
  friend Int equal(Int a, Int b) { return a.v == b.v; }
  friend Int select(Int condition, Int a, Int b) { return condition.v != 0 ? a : b; }

 private:
  uint32_t bits() const { return static_cast<uint32_t>(v); }
};

}  // namespace quern
