// Value domains of the reference: real numbers as f64 (or in f32), and 32-bit integers that wrap.
#pragma once

#include <cmath>
#include <cstdint>

namespace quern {

template <class T>
struct Floating {
  static constexpr bool kFloating = true;
  T v;
  Floating(double value) : v(static_cast<T>(value)) {}

  friend Floating operator-(Floating a) { return -a.v; }
  friend Floating operator+(Floating a, Floating b) { return a.v + b.v; }
  friend Floating operator-(Floating a, Floating b) { return a.v - b.v; }
  friend Floating operator*(Floating a, Floating b) { return a.v * b.v; }
  friend Floating operator/(Floating a, Floating b) { return a.v / b.v; }
  friend Floating exp(Floating a) { return std::exp(a.v); }
  friend Floating log(Floating a) { return std::log(a.v); }
  friend Floating sqrt(Floating a) { return std::sqrt(a.v); }
  friend Floating tanh(Floating a) { return std::tanh(a.v); }
  friend Floating erf(Floating a) { return std::erf(a.v); }
  friend Floating pow(Floating a, Floating b) { return std::pow(a.v, b.v); }
  friend Floating abs(Floating a) { return std::fabs(a.v); }
  // NaN if one is NaN.
  friend Floating max(Floating a, Floating b) { return a.v > b.v || std::isnan(a.v) ? a : b; }
  friend Floating min(Floating a, Floating b) { return a.v < b.v || std::isnan(a.v) ? a : b; }
  friend Floating less(Floating a, Floating b) { return a.v < b.v; }
  friend Floating less_equal(Floating a, Floating b) { return a.v <= b.v; }
  friend Floating equal(Floating a, Floating b) { return a.v == b.v; }
  friend Floating select(Floating condition, Floating a, Floating b) { return condition.v != 0 ? a : b; }
};
using Real = Floating<double>;
// As an unfused program computes: every step of a meaning is rounded to f32.
using Single = Floating<float>;

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
