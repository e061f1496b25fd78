#include "core/kernel/value.h"

#include <cmath>

#include "core/base/dtype_info.h"
#include "core/base/status.h"
#include "core/lang/meaning.h"

namespace quern::ir {

namespace {

// The type in which two expressions meet: that of the one which is not a number.
DType common(const Value& a, const Value& b) { return a.is_number() ? b.type() : a.type(); }

Scalar scalar_for(DType type) { return scalar_of(type); }

}  // namespace

DType register_dtype(Scalar type) {
  return type == Scalar::boolean ? DType::boolean : type == Scalar::i32 ? DType::i32 : DType::f32;
}

DType Value::type() const { return is_number_ ? DType::f32 : register_dtype(expr_.type()); }

Expr Value::as(DType type) const {
  if (is_number_) return literal(number_, scalar_for(type));
  check(type == this->type(), "an expression meets one of another type");
  return expr_;
}

Value Value::approximate() const {
  Value out = *this;
  out.approximate_ = true;
  return out;
}

Value Value::shared_divisor() const {
  Value out = *this;
  out.shared_ = true;
  return out;
}

Value Value::accumulator() const {
  Value out = *this;
  out.accumulates_ = true;
  return out;
}

// What is made of `a` and `b` is as exact as they are.
Value Value::made_of(const Value& a, const Value& b, Expr expr) {
  Value out(std::move(expr));
  out.approximate_ = a.approximate_ || b.approximate_;
  return out;
}

namespace {

Value call_one(Function function, const Value& a) {
  return Value::made_of(a, a, call(function, Scalar::f32, {a.as(DType::f32)}));
}

Value call_two(const Value& a, const Value& b, Function function, Function integer) {
  const DType type = common(a, b);
  return Value::made_of(
      a, b, call(type == DType::i32 ? integer : function, scalar_for(type), {a.as(type), b.as(type)}));
}

Value compare(Operator op, const Value& a, const Value& b) {
  const DType type = common(a, b);
  return operation(op, a.as(type), b.as(type));
}

// Whether quotients by it are products with its reciprocal.
bool is_power_of_two(double number) {
  int exponent = 0;
  return std::fabs(std::frexp(number, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

}  // namespace

// Integers wrap, where signed overflow is undefined in C++. Sums and differences of floats are rounded for
// themselves: a product that the compiler took into an fma with them would no longer be the rounded product
// that others see, and x * c - max(x * c) not 0 at the maximum but up to 2^-24 of it, which an exponential
// makes an infinity.
Value operator+(const Value& a, const Value& b) {
  const DType type = common(a, b);
  if (type == DType::f32 && (a.accumulates_ || b.accumulates_))
    return Value::made_of(a, b, operation(Operator::add, a.as(type), b.as(type)));
  return call_two(a, b, Function::add_rounded, Function::wrap_add);
}
Value operator-(const Value& a, const Value& b) {
  return call_two(a, b, Function::sub_rounded, Function::wrap_sub);
}
Value operator*(const Value& a, const Value& b) {
  const DType type = common(a, b);
  if (type == DType::i32) return call_two(a, b, Function::wrap_mul, Function::wrap_mul);
  return Value::made_of(a, b, operation(Operator::multiply, a.as(type), b.as(type)));
}
Value operator-(const Value& a) {
  if (a.type() == DType::i32)
    return call(Function::wrap_sub, Scalar::i32, {literal(0, Scalar::i32), a.as(DType::i32)});
  return Value::made_of(a, a, negate(a.as(DType::f32)));
}
// Quotients by numbers are exact also where others need not be: means are, and what is like its mean has none
// of it left.
Value operator/(const Value& a, const Value& b) {
  if (b.is_number_ && is_power_of_two(b.number_)) return a * Value(1 / b.number_);
  const Expr x = a.as(DType::f32), y = b.as(DType::f32);
  const bool approximate = a.approximate_ || b.approximate_;
  if (b.is_number_ || (b.shared_ && !approximate))
    return Value::made_of(a, b, call(Function::divide_common, Scalar::f32, {x, y}));
  return Value::made_of(
      a, b, approximate ? call(Function::divide_fast, Scalar::f32, {x, y}) : operation(Operator::divide, x, y));
}
Value exp(const Value& a) { return call_one(a.approximate_ ? Function::exp_fast : Function::expf, a); }
Value log(const Value& a) { return call_one(Function::logf, a); }
Value sqrt(const Value& a) { return call_one(a.approximate_ ? Function::sqrt_fast : Function::sqrtf, a); }
Value tanh(const Value& a) { return call_one(Function::tanhf, a); }
Value erf(const Value& a) { return call_one(Function::erff, a); }
Value pow(const Value& a, const Value& b) {
  return Value::made_of(a, b, call(Function::powf, Scalar::f32, {a.as(DType::f32), b.as(DType::f32)}));
}
Value abs(const Value& a) {
  if (a.type() == DType::i32) return call(Function::wrap_abs, Scalar::i32, {a.as(DType::i32)});
  return call_one(Function::absolute, a);
}
Value max(const Value& a, const Value& b) { return call_two(a, b, Function::max_nan, Function::max_int); }
Value min(const Value& a, const Value& b) { return call_two(a, b, Function::min_nan, Function::min_int); }
Value less(const Value& a, const Value& b) { return compare(Operator::less, a, b); }
Value less_equal(const Value& a, const Value& b) { return compare(Operator::less_equal, a, b); }
Value equal(const Value& a, const Value& b) { return compare(Operator::equal, a, b); }
Value select(const Value& condition, const Value& a, const Value& b) {
  const DType type = common(a, b);
  return Value::made_of(a, b, select(condition.as(DType::boolean), a.as(type), b.as(type)));
}

Expr converted(const Expr& value, DType to) {
  const DType from = register_dtype(value.type());
  if (from == to) return value;
  if (to == DType::boolean) return operation(Operator::not_equal, value, literal(0, value.type()));
  if (from == DType::f32) return call(Function::from_float, Scalar::i32, {value}, {Scalar::i32});
  return cast(value, scalar_for(to));
}

Expr converted(const Value& value, DType to) {
  return value.is_number() ? value.as(to) : converted(value.as(value.type()), to);
}

Expr rounded(const Expr& value, DType dtype) {
  if (!is_narrow(dtype)) return value;
  return call(Function::from_float, scalar_for(dtype), {value}, {scalar_for(dtype)});
}

Expr identity(OpCode reduction, DType type) {
  return literal(reduction_identity(reduction, type), scalar_for(type));
}

Expr combine(OpCode reduction, const Value& x, const Value& y, DType type) {
  // Numbers become literals first, so that at least one operand has a type.
  return apply_combine(reduction, Value(x.as(type)).accumulator(), Value(y.as(type))).as(type);
}

}  // namespace quern::ir
