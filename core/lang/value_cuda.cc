#include "core/lang/value_cuda.h"

#include <cmath>
#include <cstdio>

#include "core/base/status.h"
#include "core/lang/meaning.h"

namespace quern {

namespace {

// The type in which two expressions meet: that of the one which is not a number.
DType common(const CudaText& a, const CudaText& b) { return a.is_number() ? b.type() : a.type(); }

}  // namespace

std::string cuda_literal(double value, DType type) {
  char text[64];
  if (type == DType::boolean) return value != 0 ? "true" : "false";
  if (type == DType::i32) {
    const int32_t integer = static_cast<int32_t>(value);
    if (integer == INT32_MIN) return "(-2147483647 - 1)";
    std::snprintf(text, sizeof text, integer < 0 ? "(%d)" : "%d", integer);
    return text;
  }
  const float single = static_cast<float>(value);
  if (std::isnan(single)) return "quiet_nan()";
  if (std::isinf(single)) return single > 0 ? "infinity()" : "(-infinity())";
  std::snprintf(text, sizeof text, std::signbit(single) ? "(%.9ef)" : "%.9ef", single);
  return text;
}

std::string CudaText::as(DType type) const {
  if (is_number_) return cuda_literal(number_, type);
  check(type == type_, "an expression meets one of another type");
  return text_;
}

CudaText CudaText::approximate() const {
  CudaText out = *this;
  out.approximate_ = true;
  return out;
}

CudaText CudaText::accumulator() const {
  CudaText out = *this;
  out.accumulates_ = true;
  return out;
}

// What is made of `a` and `b` is as exact as they are.
CudaText CudaText::made_of(const CudaText& a, const CudaText& b, std::string text, DType type) {
  CudaText out(std::move(text), type);
  out.approximate_ = a.approximate_ || b.approximate_;
  return out;
}

namespace {

CudaText call(const char* name, const CudaText& a) {
  return CudaText::made_of(a, a, std::string(name) + "(" + a.as(DType::f32) + ")", DType::f32);
}

// Integers wrap, where signed overflow is undefined in C++. Sums and differences of floats are rounded for
// themselves: a product that the compiler took into an fma with them would no longer be the rounded product
// that others see, and x * c - max(x * c) not 0 at the maximum but up to 2^-24 of it, which an exponential
// makes an infinity.
CudaText arithmetic(const CudaText& a, const CudaText& b, const char* call, const char* integer_call) {
  const DType type = common(a, b);
  return CudaText::made_of(
      a, b, (type == DType::i32 ? integer_call : call) + a.as(type) + ", " + b.as(type) + ")", type);
}

// Whether quotients by it are products with its reciprocal.
bool is_power_of_two(double number) {
  int exponent = 0;
  return std::fabs(std::frexp(number, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

}  // namespace

CudaText operator+(const CudaText& a, const CudaText& b) {
  const DType type = common(a, b);
  if (type == DType::f32 && (a.accumulates_ || b.accumulates_))
    return CudaText::made_of(a, b, "(" + a.as(type) + " + " + b.as(type) + ")", type);
  return arithmetic(a, b, "__fadd_rn(", "wrap_add(");
}
CudaText operator-(const CudaText& a, const CudaText& b) { return arithmetic(a, b, "__fsub_rn(", "wrap_sub("); }
CudaText operator*(const CudaText& a, const CudaText& b) {
  const DType type = common(a, b);
  const std::string x = a.as(type), y = b.as(type);
  return CudaText::made_of(
      a, b, type == DType::i32 ? "wrap_mul(" + x + ", " + y + ")" : "(" + x + " * " + y + ")", type);
}
CudaText operator-(const CudaText& a) {
  if (a.type() == DType::i32) return {"wrap_sub(0, " + a.as(DType::i32) + ")", DType::i32};
  return CudaText::made_of(a, a, "(-" + a.as(DType::f32) + ")", DType::f32);
}
// Quotients by numbers are exact also where others need not be: means are, and what is like its mean has none
// of it left.
CudaText operator/(const CudaText& a, const CudaText& b) {
  if (b.is_number_ && is_power_of_two(b.number_)) return a * CudaText(1 / b.number_);
  const std::string x = a.as(DType::f32), y = b.as(DType::f32);
  std::string text = "(" + x + " / " + y + ")";
  if (a.approximate_ || b.approximate_)
    text = (b.is_number_ && std::fabs(b.number_) > 1e-30 && std::fabs(b.number_) < 1e30 ? "divide_by("
                                                                                        : "divide_fast(") +
           x + ", " + y + ")";
  return CudaText::made_of(a, b, text, DType::f32);
}
CudaText exp(const CudaText& a) { return call(a.approximate_ ? "exp_fast" : "expf", a); }
CudaText log(const CudaText& a) { return call("logf", a); }
CudaText sqrt(const CudaText& a) { return call(a.approximate_ ? "sqrt_fast" : "sqrtf", a); }
CudaText tanh(const CudaText& a) { return call("tanhf", a); }
CudaText erf(const CudaText& a) { return call("erff", a); }
CudaText pow(const CudaText& a, const CudaText& b) {
  return CudaText::made_of(a, b, "powf(" + a.as(DType::f32) + ", " + b.as(DType::f32) + ")", DType::f32);
}
CudaText abs(const CudaText& a) {
  if (a.type() == DType::i32) return {"wrap_abs(" + a.as(DType::i32) + ")", DType::i32};
  return call("fabsf", a);
}
CudaText max(const CudaText& a, const CudaText& b) {
  const DType type = common(a, b);
  return CudaText::made_of(
      a, b, (type == DType::i32 ? "max_int(" : "max_nan(") + a.as(type) + ", " + b.as(type) + ")", type);
}
CudaText min(const CudaText& a, const CudaText& b) {
  const DType type = common(a, b);
  return CudaText::made_of(
      a, b, (type == DType::i32 ? "min_int(" : "min_nan(") + a.as(type) + ", " + b.as(type) + ")", type);
}
CudaText less(const CudaText& a, const CudaText& b) {
  const DType type = common(a, b);
  return {"(" + a.as(type) + " < " + b.as(type) + ")", DType::boolean};
}
CudaText less_equal(const CudaText& a, const CudaText& b) {
  const DType type = common(a, b);
  return {"(" + a.as(type) + " <= " + b.as(type) + ")", DType::boolean};
}
CudaText equal(const CudaText& a, const CudaText& b) {
  const DType type = common(a, b);
  return {"(" + a.as(type) + " == " + b.as(type) + ")", DType::boolean};
}
CudaText select(const CudaText& condition, const CudaText& a, const CudaText& b) {
  const DType type = common(a, b);
  return CudaText::made_of(
      a, b, "(" + condition.as(DType::boolean) + " ? " + a.as(type) + " : " + b.as(type) + ")", type);
}

std::string cuda_identity(OpCode reduction, DType type) {
  return cuda_literal(reduction_identity(reduction, type), type);
}

std::string cuda_combine(OpCode reduction, const CudaText& x, const CudaText& y, DType type) {
  // Numbers become literals first, so that at least one operand has a type.
  return apply_combine(reduction, CudaText(x.as(type), type).accumulator(), CudaText(y.as(type), type))
      .as(type);
}

std::string cuda_combiner(OpCode reduction, DType type) {
  const std::string name = type == DType::i32 ? "int" : "float";
  return "[](" + name + " x, " + name + " y) { return " +
         cuda_combine(reduction, {"x", type}, {"y", type}, type) + "; }";
}

}  // namespace quern
